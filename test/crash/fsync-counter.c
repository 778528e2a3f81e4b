/* Counts the syncs of write-ahead logs: loaded before the C library (LD_PRELOAD), it appends one byte
 * to the file that FSYNC_COUNTER names after every fsync or fdatasync of a file that ends in "-wal". Where FDATASYNC_FAILS
 * is set, every fdatasync fails as on a broken disk. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void count(int fd) {
  char link[64];
  char path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 4 || strncmp(path + length - 4, "-wal", 4) != 0) return;
  const char *counter = getenv("FSYNC_COUNTER");
  if (counter == NULL) return;
  int file = open(counter, O_WRONLY | O_APPEND | O_CREAT, 0600);
  if (file < 0) return;
  if (write(file, "s", 1) != 1) abort();
  close(file);
}

int fsync(int fd) {
  int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
  int result = real(fd);
  if (result == 0) count(fd);
  return result;
}

int fdatasync(int fd) {
  if (getenv("FDATASYNC_FAILS") != NULL) {
    errno = EIO;
    return -1;
  }
  int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
  int result = real(fd);
  if (result == 0) count(fd);
  return result;
}
