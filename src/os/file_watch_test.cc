#include "os/file_watch.h"

#include <filesystem>
#include <fstream>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

#include "os/background.h"

namespace varda::os {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using Scope = FileWatch::Scope;

constexpr FileWatch::Id kMarker = 99;

class FileWatchTest : public ::testing::Test {
 protected:
  FileWatchTest() {
    std::string pattern = ::testing::TempDir() + "file_watch_test_XXXXXX";
    CHECK(::mkdtemp(pattern.data()) != nullptr);
    root_ = fs::canonical(pattern);
    write("marker", "");
  }
  ~FileWatchTest() override {
    std::error_code ignored;
    fs::remove_all(root_, ignored);
  }

  void write(const std::string& name, const std::string& text) {
    std::ofstream(root_ / name) << text;
  }
  void append(const std::string& name, const std::string& text) {
    std::ofstream(root_ / name, std::ios::app) << text;
  }

  /// All ids reported so far. Events are ordered, so the marker's event is the last.
  std::set<FileWatch::Id> notified() {
    std::set<FileWatch::Id> out;
    EXPECT_TRUE(watch_->watch(kMarker, root_ / "marker", Scope::kFile).ok());
    append("marker", "x");
    const Context ctx = Context::background().with_timeout(std::chrono::seconds(60));
    while (!out.contains(kMarker)) {
      if (!watch_->wait(ctx).ok()) {
        ADD_FAILURE() << "not even the marker is reported";
        break;
      }
      for (const FileWatch::Id id : watch_->take()) out.insert(id);
    }
    out.erase(kMarker);
    return out;
  }

  fs::path root_;
  std::unique_ptr<FileWatch> watch_ = make_file_watch();
};

struct Case {
  std::string claim;
  Scope scope;
  std::string path;  // below the root
  std::function<void(const fs::path&)> before, change;
  bool notified = true;
};

void put(const fs::path& path, const std::string& text = "text") { std::ofstream(path) << text; }
void grow(const fs::path& path) { std::ofstream(path, std::ios::app) << "more"; }

TEST_F(FileWatchTest, OnlyRelevantChangesOfAPathAreReported) {
  const std::vector<Case> cases = {
      {"an append", Scope::kFile, "a", [](auto& r) { put(r / "a"); },
       [](auto& r) { grow(r / "a"); }},
      {"an append under another name of the file", Scope::kFile, "a",
       [](auto& r) {
         put(r / "a");
         fs::create_directory(r / "other");
         fs::create_hard_link(r / "a", r / "other/b");
       },
       [](auto& r) { grow(r / "other/b"); }},
      {"a truncation", Scope::kFile, "a", [](auto& r) { put(r / "a"); },
       [](auto& r) { fs::resize_file(r / "a", 1); }},
      {"a removal", Scope::kFile, "a", [](auto& r) { put(r / "a"); },
       [](auto& r) { fs::remove(r / "a"); }},
      {"a file that comes", Scope::kFile, "a", [](auto&) {}, [](auto& r) { put(r / "a"); }},
      {"a file renamed to the path", Scope::kFile, "a",
       [](auto& r) {
         put(r / "a");
         put(r / "b");
       },
       [](auto& r) { fs::rename(r / "b", r / "a"); }},
      {"permissions", Scope::kFile, "a", [](auto& r) { put(r / "a"); },
       [](auto& r) { fs::permissions(r / "a", fs::perms::none); }},
      {"a folder on the way that comes", Scope::kFile, "d/e/a", [](auto&) {},
       [](auto& r) { fs::create_directory(r / "d"); }},
      {"a folder on the way that is renamed", Scope::kFile, "d/a",
       [](auto& r) {
         fs::create_directory(r / "d");
         put(r / "d/a");
       },
       [](auto& r) { fs::rename(r / "d", r / "e"); }},
      {"a link that leads elsewhere", Scope::kFile, "link/a",
       [](auto& r) {
         fs::create_directories(r / "one");
         fs::create_directories(r / "two");
         put(r / "one/a");
         fs::create_directory_symlink("one", r / "link");
       },
       [](auto& r) {
         fs::create_directory_symlink("two", r / "new");
         fs::rename(r / "new", r / "link");
       }},
      {"an append behind links", Scope::kFile, "d/../link",
       [](auto& r) {
         fs::create_directory(r / "d");
         put(r / "d/a");
         fs::create_symlink(r / "d/./a", r / "again");
         fs::create_symlink("again", r / "link");
       },
       [](auto& r) { grow(r / "d/a"); }},
      {"a folder: a file that comes", Scope::kFolder, "d",
       [](auto& r) { fs::create_directories(r / "d/e/f"); }, [](auto& r) { put(r / "d/e/f/a"); }},
      {"a folder: an append deep below", Scope::kFolder, "d",
       [](auto& r) {
         fs::create_directories(r / "d/e/f");
         put(r / "d/e/f/a");
       },
       [](auto& r) { grow(r / "d/e/f/a"); }},
      {"a folder: one that comes below", Scope::kFolder, "d",
       [](auto& r) { fs::create_directory(r / "d"); },
       [](auto& r) { fs::create_directory(r / "d/e"); }},
      {"a folder that goes", Scope::kFolder, "d", [](auto& r) { fs::create_directory(r / "d"); },
       [](auto& r) { fs::remove(r / "d"); }},
      {"names: a file that comes", Scope::kNames, "a", [](auto&) {}, [](auto& r) { put(r / "a"); }},

      {"no neighbour's append", Scope::kFile, "a",
       [](auto& r) {
         put(r / "a");
         put(r / "b");
       },
       [](auto& r) { grow(r / "b"); }, false},
      {"no neighbour that comes and goes", Scope::kFile, "a", [](auto& r) { put(r / "a"); },
       [](auto& r) {
         put(r / "b");
         fs::rename(r / "b", r / "c");
         fs::remove(r / "c");
       },
       false},
      {"no reading", Scope::kFile, "a", [](auto& r) { put(r / "a"); },
       [](auto& r) {
         std::string text;
         std::ifstream(r / "a") >> text;
       },
       false},
      {"names: no append", Scope::kNames, "a", [](auto& r) { put(r / "a"); },
       [](auto& r) { grow(r / "a"); }, false},
      {"a folder: nothing behind a link in it", Scope::kFolder, "d",
       [](auto& r) {
         fs::create_directory(r / "d");
         fs::create_directory(r / "out");
         fs::create_directory_symlink("../out", r / "d/link");
       },
       [](auto& r) { put(r / "out/a"); }, false},
      {"a folder: nothing in one that begins with a dot", Scope::kFolder, "d",
       [](auto& r) { fs::create_directories(r / "d/.git"); }, [](auto& r) { put(r / "d/.git/a"); },
       false},
  };
  FileWatch::Id id = 0;
  for (const Case& one : cases) {
    SCOPED_TRACE(one.claim);
    const fs::path root = root_ / std::to_string(++id);
    fs::create_directory(root);
    one.before(root);
    (void)notified();  // clears late notifications about the new folder
    ASSERT_TRUE(watch_->watch(id, root / one.path, one.scope).ok());
    EXPECT_EQ(notified(), std::set<FileWatch::Id>());
    one.change(root);
    EXPECT_EQ(notified(), one.notified ? std::set{id} : std::set<FileWatch::Id>());
    watch_->unwatch(id);
  }
}

TEST_F(FileWatchTest, RepeatedWatchFollowsNewFolders) {
  ASSERT_TRUE(watch_->watch(1, root_ / "d/a", Scope::kFile).ok());
  fs::create_directory(root_ / "d");
  EXPECT_EQ(notified(), std::set<FileWatch::Id>{1});
  write("d/a", "");  // the caller has not watched again yet
  ASSERT_TRUE(watch_->watch(1, root_ / "d/a", Scope::kFile).ok());
  EXPECT_EQ(notified(), std::set<FileWatch::Id>());
  append("d/a", "x");
  EXPECT_EQ(notified(), std::set<FileWatch::Id>{1});
}

TEST_F(FileWatchTest, EachWatchIsReportedUntilRemovedOrReplaced) {
  write("a", "");
  ASSERT_TRUE(watch_->watch(1, root_ / "a", Scope::kFile).ok());
  ASSERT_TRUE(watch_->watch(2, root_ / "a", Scope::kFile).ok());
  ASSERT_TRUE(watch_->watch(3, root_, Scope::kFolder).ok());
  append("a", "x");
  EXPECT_EQ(notified(), (std::set<FileWatch::Id>{1, 2, 3}));
  watch_->unwatch(1);
  ASSERT_TRUE(watch_->watch(3, root_ / "b", Scope::kFile).ok());  // replaces the folder watch
  EXPECT_EQ(notified(), std::set<FileWatch::Id>());
  append("a", "x");
  EXPECT_EQ(notified(), std::set<FileWatch::Id>{2});
}

TEST_F(FileWatchTest, TooManyFoldersReturnExhaustedAndTheRestIsWatched) {
  watch_ = make_file_watch({.folders_max = 3});
  for (const char* name : {"d/a", "d/b", "d/c", "d/e"}) fs::create_directories(root_ / name);
  const Status status = watch_->watch(1, root_ / "d", Scope::kFolder);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code(), Code::kExhausted);
  EXPECT_THAT(status.error().message(), HasSubstr("more than 3 folders"));
  write("d/x", "");
  EXPECT_EQ(notified(), std::set<FileWatch::Id>{1});
}

TEST_F(FileWatchTest, LinkLoopIsWatchedWithoutAnError) {
  fs::create_symlink("b", root_ / "a");
  fs::create_symlink("a", root_ / "b");
  ASSERT_TRUE(watch_->watch(1, root_ / "a", Scope::kFile).ok());
  fs::remove(root_ / "b");
  EXPECT_EQ(notified(), std::set<FileWatch::Id>{1});
}

TEST_F(FileWatchTest, WaitEndsWithItsContextOrTheFirstNotification) {
  EXPECT_EQ(watch_->wait(Context::background().with_timeout(Duration(0))).error().code(),
            Code::kTimeout);
  std::stop_source stop;
  Status ended;
  std::jthread waiting([&] { ended = watch_->wait(Context(stop.get_token())); });
  stop.request_stop();
  waiting.join();
  ASSERT_FALSE(ended.ok());
  EXPECT_EQ(ended.error().code(), Code::kCancelled);

  // wait() starts before the first watch.
  std::jthread early(
      [&] { ended = watch_->wait(Context::background().with_timeout(std::chrono::seconds(60))); });
  write("a", "");
  ASSERT_TRUE(watch_->watch(1, root_ / "a", Scope::kFile).ok());
  append("a", "x");
  early.join();
  EXPECT_TRUE(ended.ok());
  EXPECT_TRUE(watch_->pending());
  EXPECT_EQ(watch_->take(), std::vector<FileWatch::Id>{1});
  EXPECT_FALSE(watch_->pending());
}

TEST(Background, PriorityChangesForTheCallingThreadOnly) {
  const auto niceness = [] {
    errno = 0;
    const int value = ::nice(0);
    return value;
  };
  const int before = niceness();
  int lowered = 0;
  std::jthread([&] {
    lower_thread_priority();
    lowered = niceness();
  }).join();
  if (before < 15) {
    EXPECT_GT(lowered, before);
  }
  EXPECT_EQ(niceness(), before);
}

TEST(Background, LowerPriorityIsKept) {
  int lowered = 0;
  std::jthread([&] {
    ASSERT_EQ(::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), 19), 0);
    lower_thread_priority();
    lowered = ::getpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)));
  }).join();
  EXPECT_EQ(lowered, 19);
}

}  // namespace
}  // namespace varda::os
