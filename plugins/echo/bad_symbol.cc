// A library that is no plug-in, for a test of the error.
extern "C" __attribute__((visibility("default"))) int nothing_to_see();
int nothing_to_see() { return 0; }
