#include "os/confinement.h"

#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace varda::os::confinement_test {
namespace {

namespace fs = std::filesystem;

/// Confinement is permanent, so each case runs in a child. Returns the exit code; 77: this kernel
/// has no Landlock.
int in_child(const ReachableFiles& files, const std::function<int()>& then) {
  const pid_t child = ::fork();
  if (child == 0) {
    const Status confined = confine_files(files);
    if (!confined.ok()) ::_exit(confined.error().code() == Code::kUnsupported ? 77 : 78);
    ::_exit(then());
  }
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -2;
}

/// errno of open(); 0: success.
int opens(const fs::path& path, int flags = O_RDONLY) {
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC, 0644);
  if (fd < 0) return errno;
  ::close(fd);
  return 0;
}

/// True if the file has a readable byte.
bool reads(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  char byte = 0;
  const bool out = fd >= 0 && ::read(fd, &byte, 1) == 1;
  if (fd >= 0) ::close(fd);
  return out;
}

class Confinement : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(::testing::TempDir()) / ("confinement-" + std::to_string(::getpid()));
    for (const char* name : {"models", "secrets"}) {
      fs::create_directories(root_ / name);
      std::ofstream(root_ / name / "file") << "x";
    }
    fs::create_symlink("../secrets/file", root_ / "models/link");
    if (in_child({}, [] { return 0; }) == 77) GTEST_SKIP() << "this kernel has no Landlock";
  }
  void TearDown() override { fs::remove_all(root_); }
  fs::path root_;
};

TEST_F(Confinement, OnlyListedPathsAreReadable) {
  const fs::path models = root_ / "models", secrets = root_ / "secrets";
  EXPECT_EQ(in_child({.read = {models}}, [&] { return opens(models / "file"); }), 0);
  EXPECT_EQ(in_child({.read = {models}}, [&] { return opens(secrets / "file"); }), EACCES);
  EXPECT_EQ(in_child({.read = {models}}, [&] { return opens(models / "link"); }), EACCES)
      << "it leads out";
  EXPECT_EQ(in_child({.read = {models}}, [&] { return opens(models / "../secrets/file"); }),
            EACCES);
  EXPECT_EQ(in_child({.read = {models}}, [&] { return opens("/etc/passwd"); }), EACCES);
  EXPECT_EQ(in_child({.read = {secrets / "file"}}, [&] { return opens(secrets / "file"); }), 0)
      << "a file of its own";
}

TEST_F(Confinement, ReadOnlyPathsCannotBeWritten) {
  const fs::path models = root_ / "models";
  EXPECT_EQ(in_child({.read = {models}}, [&] { return opens(models / "file", O_WRONLY); }), EACCES);
  EXPECT_EQ(in_child({.read = {models}}, [&] { return opens(models / "new", O_WRONLY | O_CREAT); }),
            EACCES);
  EXPECT_EQ(in_child({.read = {models}},
                     [&] { return ::unlink((models / "file").c_str()) == 0 ? 0 : errno; }),
            EACCES);
  EXPECT_EQ(in_child({.read_write = {models}},
                     [&] { return opens(models / "file", O_WRONLY | O_TRUNC); }),
            0);
  EXPECT_EQ(
      in_child({.read_write = {models}}, [&] { return opens(models / "new", O_WRONLY | O_CREAT); }),
      EACCES);
}

TEST_F(Confinement, ConfinementAppliesToLaterThreadsAndChildren) {
  const fs::path secret = root_ / "secrets/file";
  const auto in_thread = [&] {
    int out = 0;
    std::thread([&] { out = opens(secret); }).join();
    return out;
  };
  EXPECT_EQ(in_child({.read = {root_ / "models"}}, in_thread), EACCES);
  const auto in_grandchild = [&] {
    return in_child({.read = {root_}}, [&] { return opens(secret); });
  };
  EXPECT_EQ(in_child({.read = {root_ / "models"}}, in_grandchild), EACCES)
      << "who confines himself again gains nothing";
}

TEST_F(Confinement, EnvironmentOfOtherProcessesIsUnreadable) {
  const std::string environment = "/proc/" + std::to_string(::getpid()) + "/environ";
  ASSERT_TRUE(reads(environment));
  EXPECT_EQ(in_child({.read = {"/proc"}}, [&] { return reads(environment) ? 1 : 0; }), 0);
  EXPECT_EQ(in_child({.read = {"/proc"}}, [&] { return reads("/proc/self/environ") ? 1 : 0; }), 1);
}

TEST_F(Confinement, MissingPathsAreIgnored) {
  EXPECT_EQ(in_child({.read = {root_ / "missing", root_ / "models"}},
                     [&] { return opens(root_ / "models/file"); }),
            0);
}

}  // namespace
}  // namespace varda::os::confinement_test
