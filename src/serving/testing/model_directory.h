// A temporary model repository, and requests for models of the echo engine.
#pragma once

#include <filesystem>
#include <string>

namespace varda::serving::testing {

/// The destructor removes the directory with its content. Not thread-safe.
class ModelDirectory {
 public:
  ModelDirectory();
  ~ModelDirectory();
  ModelDirectory(const ModelDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// Creates MODEL/VERSION atomically, as agents do: a model of the echo engine (plugins/echo) and
  /// its model.yaml.
  void add(const std::string& model, const std::string& version, const std::string& echo,
           const std::string& more_yaml = "");
  /// Replaces MODEL/target by rename.
  void target(const std::string& model, const std::string& version);
  /// Replaces MODEL/.last-good by rename.
  void last_good(const std::string& model, const std::string& line);
  /// Replaces MODEL/joint.json by rename.
  void joint_file(const std::string& model, const std::string& text);
  /// Writes MODEL/trial.json.
  void trial_file(const std::string& model, const std::string& text);
  void remove(const std::string& below);
  /// A file beside the repository, for hold_load and hold_run of the echo engine. The engine waits
  /// until release().
  std::string hold(const std::string& name);
  void release(const std::string& name);

 private:
  std::filesystem::path root_;
  std::filesystem::path path_;
};

/// A JSON inference request for x FP32 [1,1].
std::string infer_body(float x);

}  // namespace varda::serving::testing
