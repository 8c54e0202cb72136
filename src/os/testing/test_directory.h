// A temporary directory on the real file system, removed when the test ends.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <unistd.h>
#include <vector>

#include "base/check.h"

namespace varda::os::testing {

/// Not thread-safe.
class TestDirectory {
 public:
  // Uses memory if /dev/shm is writable: syncs to a slow disk would take minutes.
  TestDirectory() {
    std::string pattern =
        std::string(::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp") + "/varda_test_XXXXXX";
    CHECK(::mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~TestDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TestDirectory(const TestDirectory&) = delete;
  TestDirectory& operator=(const TestDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

  /// Makes missing directories.
  std::filesystem::path write(const std::string& name, const std::string& bytes) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary | std::ios::trunc) << bytes;
    return path_ / name;
  }
  /// "<none>": the file is missing.
  std::string read(const std::string& name) const {
    std::ifstream in(path_ / name, std::ios::binary);
    if (!in.is_open()) return "<none>";
    return {std::istreambuf_iterator<char>(in), {}};
  }
  /// Every path below the directory or below a folder of it, sorted.
  std::vector<std::string> all(const std::string& below = "") const {
    std::vector<std::string> out;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path_ / below))
      out.push_back(entry.path().lexically_relative(path_ / below).string());
    std::sort(out.begin(), out.end());
    return out;
  }
  unsigned mode(const std::string& name) const {
    return static_cast<unsigned>(std::filesystem::symlink_status(path_ / name).permissions()) &
           07777u;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace varda::os::testing
