#include "datadir/backup_file.h"

#include <csignal>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "codec/digest.h"
#include "codec/json.h"
#include "os/testing/child.h"
#include "store/snapshot.h"

namespace varda::datadir {
namespace {

namespace fs = std::filesystem;
using os::testing::TestDirectory;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

codec::ByteSource source_of(std::string bytes, std::size_t piece = 100) {
  return [bytes = std::move(bytes), piece, at = std::size_t{0}]() mutable -> Result<std::string> {
    const std::string out = bytes.substr(std::min(at, bytes.size()), piece);
    at += out.size();
    return out;
  };
}

store::Page page_of(const std::vector<std::pair<std::string, std::string>>& objects,
                    store::Revision revision = 41) {
  store::Page page;
  page.revision = revision;
  for (const auto& [key, value] : objects)
    page.entries.push_back({.key = key,
                            .value = std::make_shared<const store::Value>(value),
                            .created = 1,
                            .modified = 2});
  return page;
}
const std::vector<std::pair<std::string, std::string>> kObjects = {
    {"/registry/a", R"({"a":1})"},
    {"/registry/b", ""},
    {"/registry/c", std::string("line\n{\"key\":\"x\",\"bytes\":1}\n\0end", 28)}};

/// Makes a data directory with every file that a backup may hold, and some files that it must not
/// hold.
void fill(const TestDirectory& root, const std::string& name) {
  fs::create_directory(root / name);
  ASSERT_TRUE(write_state(root / name, {.address = "127.0.0.1:6443",
                                        .nodes = {{"cloud", "cloud"}, {"edge0", "edge"}},
                                        .images = {{"app:1", "/bin/app"}}})
                  .ok());
  root.write(name + "/servers.yaml", "servers: {}\n");
  root.write(name + "/pki/ca.crt", "certificate");
  root.write(name + "/pki/ca.key", "key of the CA");
  root.write(name + "/tokens.json", "{\"token\":1}");
  root.write(name + "/pki/server.key", "of this machine alone");
  root.write(name + "/kubeconfig", "of this machine alone");
}

std::string backup_of(const fs::path& data_dir, Credentials credentials, store::Page page) {
  const auto maker =
      BackupMaker::create({.data_dir = data_dir, .credentials = credentials}, std::move(page))
          .value();
  std::string out;
  for (;;) {
    const auto piece = maker->next().value();
    if (!piece) return out;
    EXPECT_FALSE(piece->empty());
    out += *piece;
  }
}

/// Any entry of an archive, also an invalid one.
struct Raw {
  std::string path, bytes;
  codec::EntryKind kind = codec::EntryKind::kFile;
  std::string target = "";
};
std::string archive_of(const std::vector<Raw>& entries,
                       codec::ArchiveFormat format = codec::ArchiveFormat::kTarZstd) {
  std::string out;
  const auto writer = codec::ArchiveWriter::create(format, [&out](std::string_view bytes) {
                        out += bytes;
                        return Status();
                      }).value();
  for (const Raw& raw : entries) {
    codec::ArchiveEntry entry;
    entry.path = raw.path;
    entry.kind = raw.kind;
    entry.size_bytes = raw.bytes.size();
    entry.link_target = raw.target;
    EXPECT_TRUE(writer->add(entry).ok());
    EXPECT_TRUE(raw.bytes.empty() || writer->write(raw.bytes).ok());
  }
  EXPECT_TRUE(writer->finish().ok());
  return out;
}
/// Makes an archive with correct sums, so that only the entries are wrong.
std::string summed(std::vector<Raw> entries) {
  std::string sums;
  for (const Raw& raw : entries)
    sums += codec::Sha256::of(raw.bytes).hex() + "  " + raw.path + "\n";
  entries.push_back({"SHA256SUMS", sums});
  return archive_of(entries);
}
Raw head_with(const std::string& changes = "{}") {
  codec::Json head =
      codec::parse_json(
          R"({"format":1,"needs":"0.1.0","program":"0.1.0","created":"2026-01-02T03:04:05Z","revision":5,
                                           "objects":1,"credentials":false,"nodes":[{"name":"a","layer":"edge"}],"images":{}})")
          .value();
  const codec::Json changed = codec::parse_json(changes).value();
  for (const auto& [name, value] : changed.as_object()) head.set(name, value);
  return {"varda-backup.json", codec::write_json(head)};
}
const Raw kObject = {"store/000001", "{\"key\":\"/k\",\"bytes\":2}\n{}\n"};

/// Removes the two files that the store keeps beside store.db: a lock and a reserve for a full
/// disk.
std::vector<std::string> without_locks(std::vector<std::string> paths) {
  std::erase_if(paths, [](const std::string& path) {
    return path.ends_with(".lock") || path.ends_with(".reserve");
  });
  return paths;
}

std::map<std::string, std::string> objects_in(const fs::path& data_dir) {
  std::map<std::string, std::string> out;
  for (const store::Entry& entry : store::read_sqlite(data_dir / "store.db").value().entries)
    out[entry.key] = *entry.value;
  return out;
}

TEST(Backup, RestoreReturnsObjectsFilesAndCredentials) {
  const TestDirectory root;
  fill(root, "old");
  const std::string bytes = backup_of(root / "old", Credentials::kInclude, page_of(kObjects));
  const BackupInfo info = check_backup(source_of(bytes)).value();
  EXPECT_EQ(info.program, VARDA_VERSION);
  EXPECT_EQ(info.revision, 41);
  EXPECT_EQ(info.objects, 3u);
  EXPECT_TRUE(info.credentials);

  const auto restored = restore_backup(source_of(bytes, 1), root / "new");
  ASSERT_TRUE(restored.ok()) << restored.error();
  EXPECT_EQ(restored->created, info.created);
  EXPECT_THAT(without_locks(root.all("new")),
              ElementsAre("pki", "pki/ca.crt", "pki/ca.key", "servers.yaml", "store.db",
                          "tokens.json", "up.json", "version.json"));
  EXPECT_EQ(objects_in(root / "new"),
            (std::map<std::string, std::string>(kObjects.begin(), kObjects.end())));
  EXPECT_GT(store::read_sqlite(root / "new/store.db")->revision, 41);
  EXPECT_EQ(root.read("new/pki/ca.key"), "key of the CA");
  EXPECT_EQ(root.read("new/servers.yaml"), "servers: {}\n");
  EXPECT_EQ(root.mode("new"), 0700u);
  EXPECT_EQ(root.mode("new/pki"), 0700u);
  EXPECT_EQ(root.mode("new/pki/ca.crt"), 0644u);
  for (const char* name : {"pki/ca.key", "tokens.json", "servers.yaml", "store.db", "up.json"})
    EXPECT_EQ(root.mode(std::string("new/") + name), 0600u) << name;
  const UpState state = read_state(root / "new").value().value();
  EXPECT_EQ(state.nodes, (std::vector<NodeSpec>{{"cloud", "cloud"}, {"edge0", "edge"}}));
  EXPECT_EQ(state.images, (std::map<std::string, std::string>{{"app:1", "/bin/app"}}));
  EXPECT_EQ(state.address, "");  // it may be another machine
  EXPECT_THAT(root.all(), Not(::testing::Contains("new.restoring")));
}

TEST(Backup, BackupCanOmitCredentials) {
  const TestDirectory root;
  fill(root, "old");
  const std::string bytes = backup_of(root / "old", Credentials::kLeaveOut, page_of(kObjects));
  EXPECT_FALSE(check_backup(source_of(bytes))->credentials);
  ASSERT_TRUE(restore_backup(source_of(bytes), root / "new").ok());
  EXPECT_THAT(without_locks(root.all("new")),
              ElementsAre("servers.yaml", "store.db", "up.json", "version.json"));
}

TEST(Backup, BackupOfMissingDirectoryIsRestorable) {
  const TestDirectory root;
  const std::string bytes = backup_of(root / "missing", Credentials::kInclude, page_of({}, 0));
  const auto restored = restore_backup(source_of(bytes), root / "deep/er/new");
  ASSERT_TRUE(restored.ok()) << restored.error();
  EXPECT_EQ(restored->objects, 0u);
  EXPECT_THAT(without_locks(root.all("deep/er/new")),
              ElementsAre("store.db", "up.json", "version.json"));
}

// One object is larger than a piece of the archive; many objects need several pieces.
TEST(Backup, LargeAndManyObjectsAreRestored) {
  const TestDirectory root;
  std::vector<std::pair<std::string, std::string>> objects = {
      {"/large", std::string(700'000, 'l')}};
  for (int i = 0; i < 3000; ++i)
    objects.emplace_back("/many/" + std::to_string(i),
                         std::string(static_cast<std::size_t>(i % 300), 'm'));
  const std::string bytes = backup_of(root.path(), Credentials::kLeaveOut, page_of(objects));
  ASSERT_TRUE(restore_backup(source_of(bytes, 10'000), root / "new").ok());
  EXPECT_EQ(objects_in(root / "new"),
            (std::map<std::string, std::string>(objects.begin(), objects.end())));
}

TEST(Backup, UnreadableFileFailsTheBackup) {
  const TestDirectory root;
  root.write("up.json", "{");
  EXPECT_EQ(BackupMaker::create({.data_dir = root.path()}, page_of({})).error().code(),
            Code::kCorrupt);
  std::filesystem::remove(root / "up.json");
  std::filesystem::create_directory(root / "servers.yaml");
  EXPECT_FALSE(BackupMaker::create({.data_dir = root.path()}, page_of({})).ok());
}

// The bytes after the sums only end the archive: the backup is complete without them.
TEST(Backup, EveryTruncationIsRefusedOrComplete) {
  const TestDirectory root;
  fill(root, "old");
  const std::string bytes = backup_of(root / "old", Credentials::kInclude, page_of(kObjects));
  std::size_t whole = 0;
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const auto checked = check_backup(source_of(bytes.substr(0, size)));
    if (checked.ok()) {
      ++whole;
      EXPECT_EQ(checked->objects, 3u);
    } else {
      EXPECT_EQ(checked.error().code(), Code::kCorrupt) << size << ": " << checked.error();
      if (size >= 4) {
        EXPECT_THAT(checked.error().message(), HasSubstr("the backup is damaged: ")) << size;
      }
    }
    if (size % 61 == 0) {
      EXPECT_EQ(restore_backup(source_of(bytes.substr(0, size)), root / "new").ok(), checked.ok())
          << size;
      EXPECT_FALSE(fs::exists(root / "new.restoring"));
      EXPECT_EQ(fs::exists(root / "new"), checked.ok()) << size;
      fs::remove_all(root / "new");
    }
  }
  EXPECT_LT(whole, 64u);  // of about a thousand
  EXPECT_GT(bytes.size(), 500u);
}

TEST(Backup, EveryChangedByteIsDetectedOrHarmless) {
  const TestDirectory root;
  fill(root, "old");
  const std::string bytes = backup_of(root / "old", Credentials::kInclude, page_of(kObjects));
  const BackupInfo right = check_backup(source_of(bytes)).value();
  std::size_t unnoticed = 0;
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    for (const char change : {'\x01', '\x80'}) {
      std::string changed = bytes;
      changed[at] = static_cast<char>(changed[at] ^ change);
      const auto checked = check_backup(source_of(changed, 1000));
      if (!checked.ok()) continue;
      ++unnoticed;
      EXPECT_EQ(checked->revision, right.revision) << at;
      EXPECT_EQ(checked->created, right.created) << at;
      EXPECT_EQ(checked->objects, right.objects) << at;
    }
  }
  EXPECT_LT(unnoticed, bytes.size() / 4);  // headers of the archive have bytes that mean nothing
}

TEST(Backup, InvalidBackupIsRefusedWithReason) {
  struct Case {
    const char* name;
    std::string bytes;
    const char* message;
  };
  const Raw head = head_with();
  const Case cases[] = {
      {"nothing", "", "not a backup of varda"},
      {"text", "Hello, world, this is a text of some length and no archive at all.\n",
       "not an archive"},
      {"zeros", std::string(10'000, '\0'), "it is incomplete"},
      {"a SQLite file", std::string("SQLite format 3\0", 16) + std::string(4080, '\0'),
       "not an archive"},
      {"a model's archive", archive_of({{"model.onnx", "bytes"}}, codec::ArchiveFormat::kTarGzip),
       "it does not begin with varda-backup.json"},
      {"an empty archive", archive_of({}), ""},
      {"a head that is not JSON", archive_of({{"varda-backup.json", "{"}}),
       "it does not begin with varda-backup.json"},
      {"sums alone", archive_of({{"SHA256SUMS", ""}}), "the SHA-256 sums at the end do not match"},
      {"no sums", archive_of({head, kObject}), "it is incomplete"},
      {"other sums", archive_of({head, kObject, {"SHA256SUMS", "0"}}),
       "the SHA-256 sums at the end do not match"},
      {"no format", summed({head_with(R"({"format":null})"), kObject}), "the format is missing"},
      {"format 0", summed({head_with(R"({"format":0})"), kObject}), "the format is missing"},
      {"a head that is a list", summed({{"varda-backup.json", "[1]"}}), "the format is missing"},
      {"a negative revision", summed({head_with(R"({"revision":-1})"), kObject}),
       "the revision is not valid"},
      {"a revision without room above",
       summed({head_with(R"({"revision":9223372036854775807})"), kObject}),
       "the revision is not valid"},
      {"an object too many", summed({head_with(R"({"objects":0})"), kObject}),
       "it has 1 objects and should have 0"},
      {"an object too few", summed({head_with(R"({"objects":2})"), kObject}),
       "it has 1 objects and should have 2"},
      {"a negative number of objects", summed({head_with(R"({"objects":-1})"), kObject}),
       "it has 1 objects and should have"},
      {"a file that occurs twice",
       summed({head, kObject, {"servers.yaml", "a"}, {"servers.yaml", "b"}}),
       "servers.yaml occurs twice"},
      {"two heads", summed({head, head, kObject}), "varda-backup.json occurs twice"},
      {"an object without a key", summed({head, {"store/1", "{\"bytes\":2}\n{}\n"}}),
       "is incomplete"},
      {"an object of negative size",
       summed({head, {"store/1", "{\"key\":\"/k\",\"bytes\":-1}\n{}\n"}}),
       "the object /k is incomplete"},
      {"an object beyond its piece",
       summed({head, {"store/1", "{\"key\":\"/k\",\"bytes\":3}\n{}\n"}}),
       "the object /k is incomplete"},
      {"an object of huge size",
       summed({head, {"store/1", "{\"key\":\"/k\",\"bytes\":9223372036854775807}\n{}\n"}}),
       "is incomplete"},
      {"an object with something behind it",
       summed({head, {"store/1", "{\"key\":\"/k\",\"bytes\":1}\n{}\n"}}), "is incomplete"},
      {"a piece without lines", summed({head, {"store/1", "{\"key\":\"/k\",\"bytes\":0}"}}),
       "has no key where an object begins"},
      {"a piece that is not JSON", summed({head, {"store/1", "key\n"}}),
       "has no key where an object begins"},
      {"a directory", summed({head, {"store", "", codec::EntryKind::kDirectory}}),
       "is not an expected file"},
      {"a link", summed({head, {"servers.yaml", "", codec::EntryKind::kSymlink, "/etc/passwd"}}),
       "is not an expected file"},
      {"a hard link",
       summed({head, {"tokens.json", "", codec::EntryKind::kHardLink, "varda-backup.json"}}),
       "is not an expected file"},
      {"a file that is too large",
       summed({head, {"servers.yaml", std::string((16u << 20) + 1, 's')}}),
       "is not an expected file"},
  };
  const TestDirectory root;
  for (const Case& one : cases) {
    const auto checked = check_backup(source_of(one.bytes, 1 << 16));
    ASSERT_FALSE(checked.ok()) << one.name;
    EXPECT_EQ(checked.error().code(), Code::kCorrupt) << one.name << ": " << checked.error();
    EXPECT_THAT(checked.error().message(), HasSubstr(one.message)) << one.name;
    const auto restored = restore_backup(source_of(one.bytes, 1 << 16), root / "new");
    EXPECT_FALSE(restored.ok()) << one.name;
    EXPECT_EQ(root.all(), std::vector<std::string>()) << one.name;
  }
}

// check_backup() accepts these archives: only restore_backup() notices the paths.
TEST(Restore, ForeignPathIsRefusedAndNotWritten) {
  struct Case {
    std::string path;
    const char* message;
  };
  const Case cases[] = {
      {"../evil", "../evil does not belong in a backup"},
      {"/evil", "evil does not belong in a backup"},
      {"pki/../../evil", "does not belong in a backup"},
      {"pki/ca.key/../../../evil", "does not belong in a backup"},
      {"./servers.yaml", "does not belong in a backup"},
      {"Servers.yaml", "does not belong in a backup"},
      {"servers.yaml ", "does not belong in a backup"},
      {"up.json", "does not belong in a backup"},
      {"store.db", "does not belong in a backup"},
      {"version.json", "does not belong in a backup"},
      {"pki/server.key", "does not belong in a backup"},
  };
  const TestDirectory root;
  for (const Case& one : cases) {
    const auto restored = restore_backup(
        source_of(summed({head_with(), kObject, {one.path, "evil"}})), root / "below/new");
    ASSERT_FALSE(restored.ok()) << one.path;
    EXPECT_EQ(restored.error().code(), Code::kCorrupt) << one.path;
    EXPECT_THAT(restored.error().message(), HasSubstr(one.message));
    EXPECT_EQ(root.all(), std::vector<std::string>{"below"}) << one.path;
  }
  // The names of pieces are never used as paths.
  ASSERT_TRUE(
      restore_backup(source_of(summed({head_with(), {"store/../../../evil", kObject.bytes}})),
                     root / "below/new")
          .ok());
  EXPECT_THAT(without_locks(root.all()),
              ElementsAre("below", "below/new", "below/new/store.db", "below/new/up.json",
                          "below/new/version.json"));
}

TEST(Restore, InvalidNodesAndDuplicateKeysAreRefused) {
  const TestDirectory root;
  const std::pair<Raw, const char*> heads[] = {
      {head_with(R"({"nodes":[{"name":"../../evil","layer":"edge"}]})"), "../../evil"},
      {head_with(R"({"nodes":[{"name":"a","layer":"fog"}]})"),
       "the layer must be cloud, edge or device"},
      {head_with(R"({"nodes":[{}]})"), "damaged"},
  };
  for (const auto& [head, message] : heads) {
    const auto restored = restore_backup(source_of(summed({head, kObject})), root / "new");
    ASSERT_FALSE(restored.ok()) << message;
    EXPECT_EQ(restored.error().code(), Code::kCorrupt) << restored.error();
    EXPECT_THAT(restored.error().message(),
                AllOf(HasSubstr("the backup is damaged"), HasSubstr(message)));
  }
  const auto twice = restore_backup(source_of(summed({head_with(R"({"objects":2})"),
                                                      {"store/1", kObject.bytes + kObject.bytes}})),
                                    root / "new");
  ASSERT_FALSE(twice.ok());
  EXPECT_EQ(twice.error().code(), Code::kCorrupt);
  EXPECT_THAT(twice.error().message(), HasSubstr("/k occurs twice"));
  EXPECT_EQ(root.all(), std::vector<std::string>());
}

TEST(Backup, BackupOfNewerProgramIsRefused) {
  const TestDirectory root;
  const std::string bytes =
      summed({head_with(R"({"format":2,"program":"0.9.1","needs":"0.7.0"})"), {"what/ever", ""}});
  for (const auto& refused :
       {check_backup(source_of(bytes)), restore_backup(source_of(bytes), root / "new")}) {
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code(), Code::kUnsupported);
    EXPECT_EQ(refused.error().message(),
              "the backup was made by varda 0.9.1; this is varda " VARDA_VERSION
              ": use varda 0.7.0 or newer");
  }
  EXPECT_EQ(root.all(), std::vector<std::string>());
}

TEST(Restore, ExistingFilesAreNeverReplaced) {
  const TestDirectory root;
  const std::string bytes = summed({head_with(), kObject});
  root.write("full/file", "mine");
  const auto full = restore_backup(source_of(bytes), root / "full");
  ASSERT_FALSE(full.ok());
  EXPECT_EQ(full.error().code(), Code::kAlreadyExists);
  EXPECT_THAT(full.error().message(), HasSubstr("is not empty"));
  root.write("file", "mine");
  EXPECT_FALSE(restore_backup(source_of(bytes), root / "file").ok());
  EXPECT_FALSE(restore_backup(source_of(bytes), root / "file/below").ok());
  EXPECT_THAT(without_locks(root.all()), ElementsAre("file", "full", "full/file"));
  EXPECT_EQ(root.read("file") + root.read("full/file"), "minemine");
}

TEST(Restore, EmptyTargetAndUnfinishedRestoreAreReplaced) {
  const TestDirectory root;
  std::filesystem::create_directory(root / "new");
  root.write("new.restoring/store.db", "half");
  root.write("new.restoring/up.json", "half");
  const auto restored = restore_backup(source_of(summed({head_with(), kObject})), root / "new");
  ASSERT_TRUE(restored.ok()) << restored.error();
  EXPECT_THAT(without_locks(root.all()),
              ElementsAre("new", "new/store.db", "new/up.json", "new/version.json"));
}

TEST(Restore, SourceErrorIsReturnedAndLeavesNothing) {
  const TestDirectory root;
  const std::string bytes = summed({head_with(), kObject});
  for (const std::size_t good : {std::size_t{0}, std::size_t{1}, bytes.size() / 2}) {
    const auto restored = restore_backup(
        [&, at = std::size_t{0}]() mutable -> Result<std::string> {
          if (at == good) return Error(Code::kCancelled, "stopped");
          return bytes.substr(at++, 1);
        },
        root / "new");
    ASSERT_FALSE(restored.ok());
    EXPECT_EQ(restored.error().code(), Code::kCancelled) << good;
    EXPECT_EQ(root.all(), std::vector<std::string>());
  }
}

// A limit on file sizes simulates a full disk.
TEST(Restore, FullDiskFailsTheRestoreAndLeavesNothing) {
  const TestDirectory root;
  const std::string bytes = backup_of(root.path(), Credentials::kLeaveOut,
                                      page_of({{"/large", std::string(2u << 20, 'l')}}));
  const os::testing::Ended ended = os::testing::run_in_child([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{256 << 10, 256 << 10};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
    const auto restored = restore_backup(source_of(bytes, 10'000), root / "new");
    return restored.ok() ? 2 : 0;
  });
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(root.all(), std::vector<std::string>());
}

}  // namespace
}  // namespace varda::datadir
