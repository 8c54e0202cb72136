// A library that is no plug-in, for the test that says so.
extern "C" __attribute__((visibility("default"))) int nothing_to_see();
int nothing_to_see() { return 0; }
