// A dataset on disk, and options for a model's input.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "codec/image.h"
#include "os/readable_tree.h"
#include "os/testing/test_directory.h"
#include "samples/samples.h"

namespace varda::samples::testing {

/// A PNG with all pixels of one value.
inline std::string plain_png(std::size_t width, std::size_t height, std::uint8_t value,
                             std::size_t channels = 1) {
  return codec::encode_png(
             {width, height, channels, std::vector<std::uint8_t>(width * height * channels, value)})
      .value();
}

inline Options options(tensor::Shape input, tensor::DType dtype = tensor::DType::kFp32) {
  Options out;
  out.input = {.name = "x", .dtype = dtype, .shape = std::move(input)};
  return out;
}

inline std::vector<float> values(const Batch& batch) {
  const auto all = batch.input.values<float>();
  return {all.begin(), all.end()};
}

/// Not thread-safe. Outlives its datasets.
class Folder {
 public:
  Folder() : tree_(os::open_readable_tree({folder_.path()}).value()) {}
  void put(const std::string& name, const std::string& bytes) { folder_.write(name, bytes); }
  Result<std::shared_ptr<const Dataset>> open(const std::string& name, Options options) const {
    return Dataset::open(Context::background(), *tree_,
                         name.empty() ? folder_.path() : folder_ / name, std::move(options));
  }
  /// The error's message without the folder's path; "" if open() succeeds.
  std::string error(const std::string& name, Options options) const {
    const auto opened = open(name, std::move(options));
    return opened.ok() ? "" : plain(opened.error().message());
  }
  std::string plain(std::string message) const {
    const std::string root = folder_.path().string();
    for (std::size_t at; (at = message.find(root)) != std::string::npos;)
      message.replace(at, root.size(), "ROOT");
    return message;
  }
  const os::Path& path() const { return folder_.path(); }

 private:
  os::testing::TestDirectory folder_;
  std::unique_ptr<os::ReadableTree> tree_;
};

}  // namespace varda::samples::testing
