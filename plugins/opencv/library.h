// Settings of OpenCV that hold for the whole process.
#pragma once

#include "infer/plugin_abi.h"

namespace varda_opencv {

/// Keeps the host's services, and stops OpenCV from writing to the log by itself. Called once.
void set_host(const varda_engine_host* host);

/// Sets the threads of each run; 0: all cores. OpenCV has one number for the process, and a change
/// would disturb current runs. The first model decides; another number is logged and ignored.
void use_threads(unsigned threads);

}  // namespace varda_opencv
