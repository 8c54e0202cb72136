// Configuration of one version: the server's defaults, overridden by the version's model.yaml.
//
//   engine: onnxruntime        # default: by the file's name
//   file: model.onnx           # default: model.onnx, or the only file of an engine: *.onnx,
//                              # *.pb, *.caffemodel, *.weights
//   instances: 2               # concurrent runs
//   threads: 1                 # per run; 0: the engine's choice
//   memoryArena: true          # keep freed memory for the next run
//   options: {optimization: all}   # passed to the engine
//   queue: {max: 256, maxBytes: 67108864, timeoutMs: 0}
//   warmup: {runs: 3, shapes: {images: [1, 8, 8]}}   # runs 0: no warm-up
//   labels: labels.txt         # default: labels.txt if it exists
//   preprocess: {image: {…}}   # transform/declaration.h
//   postprocess: {softmax: {…}, top_k: {…}, nms: {…}}
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "os/file_system.h"
#include "tensor/dtype.h"
#include "transform/declaration.h"

namespace varda::serving {

struct ModelConfig {
  std::string engine;
  std::string file;  // file name in the version's directory
  unsigned instances = 1;
  unsigned threads = 1;
  bool memory_arena = true;
  std::map<std::string, std::string> options;
  std::size_t queue_max = 256;                          // queued requests; more are refused
  std::size_t queue_bytes_max = std::size_t{64} << 20;  // total size of queued bodies
  std::chrono::milliseconds queue_timeout{0};           // longer waits are refused; 0: no limit
  unsigned warmup_runs = 3;
  std::map<std::string, tensor::Shape> warmup_shapes;  // for inputs with further open dimensions
  std::vector<std::string> labels;                     // class names, [] if unknown
  transform::Declaration transform;                    // steps before and after the run
};

/// Reads model.yaml and the labels of a version's directory over `defaults`, and determines engine
/// and file. kInvalid: an unknown or wrong setting, by name; no model file, or several; a file
/// outside the directory.
Result<ModelConfig> read_config(os::FileSystem& fs, const std::filesystem::path& directory,
                                const ModelConfig& defaults);

}  // namespace varda::serving
