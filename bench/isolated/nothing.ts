// A handler that does nothing, in a process of its own.
export default () => {};
