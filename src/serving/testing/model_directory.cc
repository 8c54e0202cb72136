#include "serving/testing/model_directory.h"

#include <fstream>
#include <stdlib.h>

#include "base/check.h"

namespace varda::serving::testing {
namespace {

void write(const std::filesystem::path& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.close();
  CHECK(file.good());
}

}  // namespace

ModelDirectory::ModelDirectory() {
  std::string name = (std::filesystem::temp_directory_path() / "models.XXXXXX").string();
  CHECK(::mkdtemp(name.data()) != nullptr);
  root_ = name;
  path_ = root_ / "repository";
  std::filesystem::create_directories(path_);
}

ModelDirectory::~ModelDirectory() { std::filesystem::remove_all(root_); }

void ModelDirectory::add(const std::string& model, const std::string& version,
                         const std::string& echo, const std::string& more_yaml) {
  std::filesystem::create_directories(path_ / model);
  const std::filesystem::path scratch = path_ / model / (".new-" + version);
  std::filesystem::create_directories(scratch);
  write(scratch / "model.echo", echo);
  write(scratch / "model.yaml", "engine: echo\n" + more_yaml);
  std::filesystem::rename(scratch, path_ / model / version);
}

void ModelDirectory::target(const std::string& model, const std::string& version) {
  write(path_ / model / ".target", version + "\n");
  std::filesystem::rename(path_ / model / ".target", path_ / model / "target");
}

void ModelDirectory::last_good(const std::string& model, const std::string& line) {
  write(path_ / model / ".new-line", line + "\n");
  std::filesystem::rename(path_ / model / ".new-line", path_ / model / ".last-good");
}

void ModelDirectory::joint_file(const std::string& model, const std::string& text) {
  std::filesystem::create_directories(path_ / model);
  write(path_ / model / ".new-joint", text);
  std::filesystem::rename(path_ / model / ".new-joint", path_ / model / "joint.json");
}

void ModelDirectory::trial_file(const std::string& model, const std::string& text) {
  write(path_ / model / ".new-trial", text);
  std::filesystem::rename(path_ / model / ".new-trial", path_ / model / "trial.json");
}

void ModelDirectory::remove(const std::string& below) {
  std::filesystem::remove_all(path_ / below);
}

std::string ModelDirectory::hold(const std::string& name) {
  write(root_ / name, "");
  return (root_ / name).string();
}

void ModelDirectory::release(const std::string& name) { std::filesystem::remove(root_ / name); }

std::string infer_body(float x) {
  return R"({"inputs":[{"name":"x","shape":[1,1],"datatype":"FP32","data":[)" + std::to_string(x) +
         "]}]}";
}

}  // namespace varda::serving::testing
