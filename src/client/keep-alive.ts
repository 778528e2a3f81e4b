/**
 * Keeps the process alive while somebody waits. The clock's own timers never do, because an idle
 * worker must not hold a process; a caller who awaits the end of a job must.
 */

/** The longest interval that the platform's timers hold; what matters is only that there is one. */
const intervalMs = 2 ** 31 - 1;

/** Keeps the process alive until the given function is called. */
export function keepAlive(): () => void {
  const timer = setInterval(() => {}, intervalMs);
  return () => clearInterval(timer);
}
