#include "os/mapped_file.h"

#include <fstream>
#include <gtest/gtest.h>
#include <string>
#include <string_view>

#include "os/testing/memory_file_system.h"
#include "os/testing/test_directory.h"

namespace varda::os {
namespace {

std::string text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(MappedFile, ShowsTheBytesAfterTheNameIsGoneAndPagesWereReleased) {
  const testing::TestDirectory directory;
  const std::string content = std::string(20'000, 'a') + "end";
  std::ofstream(directory / "file", std::ios::binary) << content;
  const auto file = MappedFile::open(real_file_system(), directory / "file");
  ASSERT_TRUE(file.ok()) << file.error();
  ASSERT_TRUE(real_file_system().remove(directory / "file").ok());
  (*file)->release(100, 20'000);
  (*file)->release(30'000, 5);
  EXPECT_EQ(text((*file)->bytes()), content);
}

TEST(MappedFile, ReadsOtherFileSystemsAndEmptyFiles) {
  testing::MemoryFileSystem fs;
  ASSERT_TRUE(write_file_atomically(fs, "/a", "abc").ok());
  EXPECT_EQ(text(MappedFile::open(fs, "/a").value()->bytes()), "abc");
  const testing::TestDirectory directory;
  std::ofstream(directory / "empty").flush();
  EXPECT_TRUE(MappedFile::open(real_file_system(), directory / "empty").value()->bytes().empty());
}

TEST(MappedFile, RefusesDirectoriesAndMissingFiles) {
  const testing::TestDirectory directory;
  EXPECT_EQ(MappedFile::open(real_file_system(), directory / "none").error().code(),
            Code::kNotFound);
  EXPECT_EQ(MappedFile::open(real_file_system(), directory / ".").error().code(), Code::kInvalid);
}

}  // namespace
}  // namespace varda::os
