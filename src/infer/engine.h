// Engines and models in C++: the plug-in ABI (plugin_abi.h) with ownership, results and checked
// names.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "tensor/tensor.h"

namespace varda::infer {

struct LoadOptions {
  std::filesystem::path directory;  // of the model's version
  std::filesystem::path file;       // the main file
  unsigned intra_op_threads = 1;    // per run; 0: the engine's choice. Parallel runs scale better
  bool memory_arena = true;         // keep freed memory: faster, but the peak stays
  std::map<std::string, std::string> options;  // engine-specific
  std::string_view model;  // the model's bytes instead of a file; borrowed for the call
};

/// A loaded model. Thread-safe, up to concurrent_runs_max().
class Model {
 public:
  virtual ~Model() = default;
  virtual const std::vector<tensor::Spec>& inputs() const = 0;
  virtual const std::vector<tensor::Spec>& outputs() const = 0;
  /// Limit of concurrent run() calls; 0: no limit.
  virtual unsigned concurrent_runs_max() const = 0;

  /// Runs the model on the calling thread; a run cannot be cancelled. `inputs` are all inputs of
  /// the model, each once, fitting its specification. `outputs` are output names in the wanted
  /// order; empty: all. The returned tensors share the engine's memory, keep it alive, and may
  /// outlive the model. kInvalid: names, types or shapes do not match the model, or the engine
  /// rejects the values.
  virtual Result<std::vector<tensor::Named>> run(std::span<const tensor::Named> inputs,
                                                 std::span<const std::string> outputs) = 0;
};

/// One plug-in. Thread-safe; lives as long as the process.
class Engine {
 public:
  virtual ~Engine() = default;
  virtual const std::string& name() const = 0;
  /// Version of the library behind the plug-in, "" if unknown.
  virtual std::string library_version() const = 0;
  /// Blocks while reading and preparing the file. kInvalid: wrong file or options. kUnsupported: a
  /// valid model that this engine cannot run. kUnavailable: the library behind the plug-in is
  /// missing. kExhausted: out of memory.
  virtual Result<std::unique_ptr<Model>> load(const LoadOptions& options) = 0;
};

/// Loads a plug-in. kNotFound: no such file. kInvalid: not a plug-in, or another ABI version.
Result<std::unique_ptr<Engine>> open_engine(const std::filesystem::path& plugin);

/// Engines by name, each loaded on first use. Thread-safe.
class Engines {
 public:
  /// Searches plug-ins in these directories, in order.
  explicit Engines(std::vector<std::filesystem::path> directories)
      : directories_(std::move(directories)) {}

  /// The engine of varda-engine-NAME.so; it lives as long as this object. kNotFound: no directory
  /// has it; the message lists the directories.
  Result<Engine*> get(std::string_view name);

 private:
  const std::vector<std::filesystem::path> directories_;
  Mutex mutex_;
  std::map<std::string, std::unique_ptr<Engine>, std::less<>> engines_ GUARDED_BY(mutex_);
};

}  // namespace varda::infer
