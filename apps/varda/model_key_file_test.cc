#include "model_key_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codec/ed25519.h"
#include "os/testing/test_directory.h"

namespace varda::app {
namespace model_key_file_test {

using os::testing::TestDirectory;
using ::testing::HasSubstr;

struct ManualClock final : Clock {
  SteadyTime now() const override { return time; }
  WallTime wall() const override { return {}; }
  void advance(Duration by) { time += by; }
  SteadyTime time;
};

std::string new_key() { return codec::Ed25519PrivateKey::generate().public_key().base64(); }

TEST(ModelKeyFile, ChangedFileIsReadAgain) {
  const TestDirectory root;
  ManualClock clock;
  const auto path = root.write("keys", new_key() + "\n");
  const auto file = ModelKeyFile::open(path, clock).value();
  const auto first = file->keys();
  root.write("keys", new_key() + "\n" + new_key() + "\n");
  EXPECT_EQ(file->keys(), first);  // not read again yet
  clock.advance(std::chrono::seconds(5));
  EXPECT_EQ(file->keys()->size(), 2u);
}

TEST(ModelKeyFile, SameContentKeepsCheckedSignatures) {
  const TestDirectory root;
  ManualClock clock;
  const auto file = ModelKeyFile::open(root.write("keys", new_key()), clock).value();
  const auto first = file->keys();
  clock.advance(std::chrono::seconds(5));
  EXPECT_EQ(file->keys(), first);
}

// A wrong or missing file must not open the operator to unsigned models.
TEST(ModelKeyFile, WrongFileKeepsTheLastKeys) {
  const TestDirectory root;
  ManualClock clock;
  const auto path = root.write("keys", new_key());
  const auto file = ModelKeyFile::open(path, clock).value();
  const auto first = file->keys();
  for (const char* text : {"", "# no key\n", "not a key\n"}) {
    root.write("keys", text);
    clock.advance(std::chrono::seconds(5));
    EXPECT_EQ(file->keys(), first) << text;
  }
  std::filesystem::remove(path);
  clock.advance(std::chrono::seconds(5));
  EXPECT_EQ(file->keys(), first);
}

TEST(ModelKeyFile, WrongFileAtTheStartIsAnError) {
  const TestDirectory root;
  const auto empty = ModelKeyFile::open(root.write("empty", ""));
  ASSERT_FALSE(empty.ok());
  EXPECT_THAT(empty.error().message(), HasSubstr((root / "empty").string()));
  const auto wrong = ModelKeyFile::open(root.write("wrong", "# comment\nkey\n"));
  ASSERT_FALSE(wrong.ok());
  EXPECT_THAT(wrong.error().message(), HasSubstr("line 2"));
  EXPECT_FALSE(ModelKeyFile::open(root / "missing").ok());
}

}  // namespace model_key_file_test
}  // namespace varda::app
