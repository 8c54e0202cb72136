#include "os/positional_file.h"

#include <gtest/gtest.h>
#include <string>

#include "os/testing/memory_file_system.h"
#include "os/testing/test_directory.h"

namespace varda::os {
namespace positional_file_test {

Result<std::string> text(const PositionalFile& file, std::uint64_t offset, std::size_t size) {
  std::string out(size, '\0');
  TRY_VOID(file.read(offset, std::as_writable_bytes(std::span(out.data(), out.size()))));
  return out;
}

TEST(PositionalFile, ReadsAnyRangeAfterTheNameIsGone) {
  const testing::TestDirectory directory;
  directory.write("file", std::string(20'000, 'a') + "end");
  const auto file = PositionalFile::open(real_file_system(), directory / "file");
  ASSERT_TRUE(file.ok()) << file.error();
  ASSERT_TRUE(real_file_system().remove(directory / "file").ok());
  EXPECT_EQ((*file)->size(), 20'003u);
  EXPECT_EQ(text(**file, 19'999, 4).value(), "aend");
  EXPECT_EQ(text(**file, 0, 0).value(), "");
  EXPECT_EQ(text(**file, 20'000, 4).error().code(), Code::kCorrupt);
}

TEST(PositionalFile, ReadsOtherFileSystemsAndBytes) {
  testing::MemoryFileSystem fs;
  ASSERT_TRUE(write_file_atomically(fs, "/a", "abc").ok());
  const auto file = PositionalFile::open(fs, "/a").value();
  EXPECT_EQ(text(*file, 1, 2).value(), "bc");
  EXPECT_EQ(file->bytes().size(), 3u);
  EXPECT_EQ(text(*PositionalFile::of("xyz"), 2, 2).error().code(), Code::kCorrupt);
}

TEST(PositionalFile, RefusesDirectoriesAndMissingFiles) {
  const testing::TestDirectory directory;
  EXPECT_EQ(PositionalFile::open(real_file_system(), directory / "none").error().code(),
            Code::kNotFound);
  EXPECT_EQ(PositionalFile::open(real_file_system(), directory.path()).error().code(),
            Code::kInvalid);
}

}  // namespace positional_file_test
}  // namespace varda::os
