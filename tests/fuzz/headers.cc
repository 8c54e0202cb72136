// Nothing but a place for the precompiled headers (see the CMakeLists.txt at the root).
