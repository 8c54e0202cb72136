// Engines and models in C++: what plug-ins offer (plugin_abi.h) with owners, results and names checked.
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
  std::filesystem::path file;       // its main file
  unsigned intra_op_threads = 1;    // of one run; 0: the engine's choice. Several runs at a time scale better than wide ones
  bool memory_arena = true;         // keep freed memory for the next run: faster, and the peak stays
  std::map<std::string, std::string> options;  // the engine's own
};

/// A loaded model. Thread-safe, within concurrent_runs_max().
class Model {
 public:
  virtual ~Model() = default;
  virtual const std::vector<tensor::Spec>& inputs() const = 0;
  virtual const std::vector<tensor::Spec>& outputs() const = 0;
  /// How many threads may be in run() at a time; 0: any number.
  virtual unsigned concurrent_runs_max() const = 0;

  /// Runs it on the calling thread until it is done: nothing can stop it on the way. Inputs are the model's, each once and fitting
  /// its specification; `outputs` are names of outputs in the order wanted, all of them if empty. The tensors that come back keep
  /// the engine's memory alive, without a copy; they may outlive the model.
  /// kInvalid: names, types or shapes are not the model's, or the engine refuses the values.
  virtual Result<std::vector<tensor::Named>> run(std::span<const tensor::Named> inputs, std::span<const std::string> outputs) = 0;
};

/// One plug-in. Thread-safe; lives as long as the process.
class Engine {
 public:
  virtual ~Engine() = default;
  virtual const std::string& name() const = 0;
  /// Of the library behind it, "" if unknown.
  virtual std::string library_version() const = 0;
  /// Blocks while the file is read and prepared. kInvalid: the file or the options. kUnsupported: a sound model that this engine
  /// cannot run. kUnavailable: the library behind the plug-in is missing. kExhausted: memory.
  virtual Result<std::unique_ptr<Model>> load(const LoadOptions& options) = 0;
};

/// Loads a plug-in. kNotFound: no such file. kInvalid: not a plug-in, or of another ABI version.
Result<std::unique_ptr<Engine>> open_engine(const std::filesystem::path& plugin);

/// Engines by name, each loaded when first asked for. Thread-safe.
class Engines {
 public:
  /// Plug-ins are looked for in these directories, in order.
  explicit Engines(std::vector<std::filesystem::path> directories) : directories_(std::move(directories)) {}

  /// The engine of varda-engine-NAME.so; it lives as long as this. kNotFound: in none of the directories; the message lists them.
  Result<Engine*> get(std::string_view name);

 private:
  const std::vector<std::filesystem::path> directories_;
  Mutex mutex_;
  std::map<std::string, std::unique_ptr<Engine>, std::less<>> engines_ GUARDED_BY(mutex_);
};

}  // namespace varda::infer
