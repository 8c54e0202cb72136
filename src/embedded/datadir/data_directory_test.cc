#include "datadir/data_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codec/json.h"
#include "datadir/up_state.h"
#include "os/testing/memory_file_system.h"
#include "os/testing/test_directory.h"
#include "store/snapshot.h"

namespace varda::datadir {
namespace {

using os::testing::TestDirectory;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string version_of(const TestDirectory& root) {
  const auto json = codec::parse_json(root.read("version.json"));
  return json.ok() ? codec::write_json(*json) : root.read("version.json");
}
std::string current_version() {
  return "{\"format\":" + std::to_string(kDirectoryFormat) +
         ",\"needs\":\"0.1.0\",\"writtenBy\":\"" VARDA_VERSION "\"}";
}

/// Makes a store with one object, like a process that ended.
void make_store(const std::filesystem::path& file) {
  std::filesystem::create_directories(file.parent_path());
  const auto writer = store::SqliteWriter::create(file).value();
  ASSERT_TRUE(writer->add("/registry/a", "{}").ok());
  ASSERT_TRUE(writer->finish(7).ok());
}
/// Makes a store of a later program: SQLite's header has a user version at offset 60.
void make_newer_store(const TestDirectory& root, const std::string& name) {
  make_store(root / name);
  std::string bytes = root.read(name);
  ASSERT_GT(bytes.size(), 100u);
  bytes.replace(60, 4, std::string("\0\0\0\x63", 4));
  root.write(name, bytes);
}

TEST(DataDirectory, NewDirectoryIsMarkedWithVersion) {
  const TestDirectory root;
  ASSERT_TRUE(prepare_data_directory(root.path()).ok());
  EXPECT_EQ(version_of(root), current_version());
  EXPECT_EQ(root.mode("version.json"), 0600u);
  EXPECT_EQ(root.all(), std::vector<std::string>{"version.json"});
}

TEST(DataDirectory, NewDirectoryNeedsRoomForAStore) {
  os::testing::MemoryFileSystem files;
  ASSERT_TRUE(files.make_directories("/data", 0755).ok());
  files.set_capacity(64 << 20);
  EXPECT_TRUE(check_first_room("/data", files).ok());
  files.set_capacity(3 << 20);
  const Status status = check_first_room("/data", files);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code(), Code::kExhausted);
  EXPECT_THAT(status.error().message(),
              HasSubstr("the disk of /data has 3 MiB left, and varda needs 12 MiB to start"));
  ASSERT_TRUE(os::write_file_atomically(files, "/data/store.db", "").ok());
  EXPECT_TRUE(check_first_room("/data", files).ok())
      << "what is there is served, also on a full disk";
}

TEST(DataDirectory, DirectoryOfCurrentFormatIsNotChanged) {
  const TestDirectory root;
  const std::string marked =
      "{\"format\": " + std::to_string(kDirectoryFormat) + ", \"writtenBy\": \"another\"}";
  root.write("version.json", marked);
  root.write("store.db", "no store at all");
  ASSERT_TRUE(prepare_data_directory(root.path()).ok());
  EXPECT_EQ(root.read("version.json"), marked);
}

TEST(DataDirectory, FirstFormatIsUpgraded) {
  for (const bool named : {false, true}) {
    const TestDirectory root;
    make_store(root / "store.db");
    make_store(root / "nodes/edge0/data/agent.db");
    std::filesystem::create_directories(root / "nodes/edge1/data");  // a node that never ran
    if (named) root.write("version.json", R"({"format":1})");
    const Status prepared = prepare_data_directory(root.path());
    ASSERT_TRUE(prepared.ok()) << prepared.error();
    EXPECT_EQ(version_of(root), current_version());
    EXPECT_EQ(store::read_sqlite(root / "store.db")->entries.size(), 1u);
    EXPECT_EQ(store::read_sqlite(root / "nodes/edge0/data/agent.db")->entries.size(), 1u);
    EXPECT_FALSE(std::filesystem::exists(root / "nodes/edge1/data/agent.db"));
  }
}

TEST(DataDirectory, StateWithoutStoreIsUpgraded) {
  const TestDirectory root;
  ASSERT_TRUE(write_state(root.path(), {}).ok());
  ASSERT_TRUE(prepare_data_directory(root.path()).ok());
  EXPECT_EQ(version_of(root), current_version());
}

TEST(DataDirectory, StoreOfNewerProgramStopsTheUpgrade) {
  for (const char* name : {"store.db", "nodes/edge0/data/agent.db"}) {
    const TestDirectory root;
    if (name != std::string("store.db")) make_store(root / "store.db");
    make_newer_store(root, name);
    root.write("up.json", "{}");
    const Status prepared = prepare_data_directory(root.path());
    ASSERT_FALSE(prepared.ok()) << name;
    EXPECT_EQ(prepared.error().code(), Code::kUnsupported) << prepared.error();
    EXPECT_THAT(prepared.error().message(),
                AllOf(HasSubstr("upgrade of " + root.path().string()), HasSubstr(name)));
    EXPECT_EQ(root.read("version.json"), "<none>");  // the next start retries
  }
}

// The owner reports the damaged store. The owner of the store in use upgrades it.
TEST(DataDirectory, DamagedOrOpenStoreDoesNotStopTheUpgrade) {
  const TestDirectory root;
  root.write("store.db", std::string(4096, 'x'));
  make_store(root / "nodes/edge0/data/agent.db");
  const auto in_use = store::open_sqlite(root / "nodes/edge0/data/agent.db").value();
  const Status prepared = prepare_data_directory(root.path());
  ASSERT_TRUE(prepared.ok()) << prepared.error();
  EXPECT_EQ(version_of(root), current_version());
  EXPECT_EQ(root.read("store.db"), std::string(4096, 'x'));
}

TEST(DataDirectory, DirectoryOfNewerProgramIsRefused) {
  const TestDirectory root;
  const std::string marked = R"({"format":3,"needs":"0.7.0","writtenBy":"0.9.1"})";
  root.write("version.json", marked);
  const Status prepared = prepare_data_directory(root.path());
  ASSERT_FALSE(prepared.ok());
  EXPECT_EQ(prepared.error().code(), Code::kUnsupported);
  EXPECT_THAT(prepared.error().message(),
              AllOf(HasSubstr(root.path().string()), HasSubstr("written by varda 0.9.1"),
                    HasSubstr("use varda 0.7.0 or newer")));
  EXPECT_EQ(root.read("version.json"), marked);
}

TEST(DataDirectory, AVersionWithoutAFormatIsCorrupt) {
  const TestDirectory root;
  for (const char* text :
       {"", "{", "null", "[2]", "{}", R"({"format":"2"})", R"({"format":0})", R"({"format":-1})",
        R"({"format":1.5})", R"({"format":1e30})", R"({"Format":2})"}) {
    root.write("version.json", text);
    const Status prepared = prepare_data_directory(root.path());
    ASSERT_FALSE(prepared.ok()) << text;
    EXPECT_EQ(prepared.error().code(), Code::kCorrupt) << text;
    EXPECT_EQ(prepared.error().message(),
              (root / "version.json").string() + " has no valid format");
    EXPECT_EQ(root.read("version.json"), text);
  }
}

TEST(DataDirectory, MissingDirectoryIsAnError) {
  const TestDirectory root;
  EXPECT_FALSE(prepare_data_directory(root / "missing").ok());
  EXPECT_EQ(root.all(), std::vector<std::string>());
}

}  // namespace
}  // namespace varda::datadir
