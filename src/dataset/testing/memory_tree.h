// Files in memory behind os::ReadableTree, which can change or fail while they are read.
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "os/readable_tree.h"

namespace varda::dataset::testing {

/// One folder of files. Not thread-safe.
class MemoryTree final : public os::ReadableTree {
 public:
  struct Entry {
    std::string bytes;
    os::FileFacts facts;
  };

  void put(const std::string& path, std::string bytes, std::uint64_t inode = 1) {
    Entry& entry = files_[path];
    entry.bytes = std::move(bytes);
    entry.facts.inode = inode;
    entry.facts.modified_ns = ++now_;
  }
  void append(const std::string& path, std::string_view bytes) {
    files_[path].bytes += bytes;
    files_[path].facts.modified_ns = ++now_;
  }
  void truncate(const std::string& path, std::size_t size) {
    files_[path].bytes.resize(size);
    files_[path].facts.modified_ns = ++now_;
  }
  /// No effect if `from` is missing.
  void rename(const std::string& from, const std::string& to) {
    if (auto node = files_.extract(from)) {
      files_.erase(to);
      node.key() = to;
      files_.insert(std::move(node));
    }
  }
  void remove(const std::string& path) { files_.erase(path); }
  /// Called before each read from `offset`. It may change the file. Its error becomes the read's
  /// error.
  std::function<Status(std::uint64_t offset)> on_read;
  std::uint64_t bytes_read = 0;

  Result<os::FileFacts> facts(const os::Path& path) override {
    const auto at = files_.find(path.string());
    if (at == files_.end())
      return Error(Code::kNotFound, path.string() + ": No such file or directory");
    os::FileFacts out = at->second.facts;
    out.size_bytes = at->second.bytes.size();
    return out;
  }
  Result<std::unique_ptr<os::ReadableFile>> open(const os::Path& path) override {
    TRY_VOID(facts(path));
    return std::make_unique<File>(*this, path);
  }
  Result<std::unique_ptr<os::ReadableDirectory>> list(const os::Path& path) override {
    return Error(Code::kInvalid, path.string() + " is not a directory");
  }

 private:
  class File final : public os::ReadableFile {
   public:
    File(MemoryTree& tree, os::Path path) : tree_(tree), path_(std::move(path)) {}
    Result<std::size_t> read(std::uint64_t offset, std::span<char> into) override {
      if (tree_.on_read) TRY_VOID(tree_.on_read(offset));
      const auto at = tree_.files_.find(path_.string());
      if (at == tree_.files_.end()) return Error(Code::kNotFound, path_.string() + ": removed");
      const std::string& bytes = at->second.bytes;
      if (offset >= bytes.size()) return std::size_t{0};
      const std::size_t count = std::min<std::size_t>(into.size(), bytes.size() - offset);
      std::memcpy(into.data(), bytes.data() + offset, count);
      tree_.bytes_read += count;
      return count;
    }
    Result<os::FileFacts> facts() override { return tree_.facts(path_); }

   private:
    MemoryTree& tree_;
    const os::Path path_;
  };

  std::map<std::string, Entry> files_;
  std::int64_t now_ = 0;
};

}  // namespace varda::dataset::testing
