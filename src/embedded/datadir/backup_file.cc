#include "datadir/backup_file.h"

#include <algorithm>
#include <deque>
#include <map>
#include <set>

#include "base/clock.h"
#include "codec/digest.h"
#include "codec/json.h"
#include "datadir/data_directory.h"
#include "meta/object.h"
#include "os/file_system.h"
#include "store/snapshot.h"

namespace varda::datadir {
namespace {

namespace fs = std::filesystem;
using codec::Json;

constexpr int kFormat = 1;
constexpr const char* kBackupNeeds = "0.1.0";  // the oldest program that reads kFormat
constexpr const char* kHead = "varda-backup.json";
constexpr const char* kSums = "SHA256SUMS";
constexpr const char* kStore = "store/";
constexpr std::string_view kZstd("\x28\xb5\x2f\xfd", 4);  // the first bytes of a frame (RFC 8878)
constexpr const char* kCutOff = "; was the copy truncated?";
// A restored store starts a billion revisions later, and JSON readers must represent that revision.
constexpr store::Revision kRevisionMax = (store::Revision{1} << 53) - 1'000'000'000;
constexpr std::size_t kPieceBytes = 128 << 10;
constexpr std::uint64_t kBackedUpFileBytesMax = 16u << 20;
constexpr std::uint64_t kPieceBytesMax = 1u << 30;  // --object-bytes-max allows large objects

const std::vector<std::string>& credential_files() {
  static const std::vector<std::string> kFiles = {"pki/ca.crt", "pki/ca.key", "tokens.json"};
  return kFiles;
}

struct NamedFile {
  std::string path, bytes;
};

std::string head(const UpState& state, const store::Page& page, Credentials credentials) {
  Json nodes = Json::array();
  for (const NodeSpec& node : state.nodes)
    nodes.push_back(Json::object({{"name", node.name}, {"layer", node.layer}}));
  Json images = Json::object();
  for (const auto& [name, command] : state.images) images.set(name, command);
  return codec::write_json_pretty(
             Json::object({{"format", kFormat},
                           {"needs", kBackupNeeds},
                           {"program", VARDA_VERSION},
                           {"created", meta::format_time(system_clock().wall())},
                           {"revision", page.revision},
                           {"objects", page.entries.size()},
                           {"credentials", credentials == Credentials::kInclude},
                           {"nodes", std::move(nodes)},
                           {"images", std::move(images)}})) +
         "\n";
}

class Maker final : public BackupMaker {
 public:
  Maker(std::vector<NamedFile> files, store::Page page)
      : files_(std::make_move_iterator(files.begin()), std::make_move_iterator(files.end())),
        page_(std::move(page)) {}

  Status open() {
    TRY(archive_, codec::ArchiveWriter::create(codec::ArchiveFormat::kTarZstd,
                                               [this](std::string_view bytes) {
                                                 out_ += bytes;
                                                 return Status();
                                               }));
    return {};
  }

  Result<std::optional<std::string>> next() override {
    while (out_.empty() && !finished_) TRY_VOID(step());
    if (out_.empty()) return std::optional<std::string>();
    return std::optional(std::exchange(out_, {}));
  }

 private:
  Status step() {
    if (!files_.empty()) {
      const NamedFile file = std::move(files_.front());
      files_.pop_front();
      return add(file);
    }
    if (at_ < page_.entries.size()) {
      char name[32];
      std::snprintf(name, sizeof name, "%s%06zu", kStore, ++pieces_);
      NamedFile piece{name, ""};
      while (at_ < page_.entries.size() &&
             (piece.bytes.empty() || piece.bytes.size() < kPieceBytes)) {
        store::Entry& entry = page_.entries[at_++];
        piece.bytes +=
            codec::write_json(Json::object({{"key", entry.key}, {"bytes", entry.value->size()}})) +
            "\n";
        piece.bytes += *entry.value;
        piece.bytes += '\n';
        entry = {};  // frees the memory
      }
      return add(piece);
    }
    TRY_VOID(add({kSums, std::exchange(sums_, {})}));
    finished_ = true;
    return archive_->finish();
  }

  Status add(const NamedFile& file) {
    sums_ += codec::Sha256::of(file.bytes).hex() + "  " + file.path + "\n";
    codec::ArchiveEntry entry;
    entry.path = file.path;
    entry.size_bytes = file.bytes.size();
    entry.mode = 0600;
    TRY_VOID(archive_->add(entry));
    return archive_->write(file.bytes);
  }

  std::deque<NamedFile> files_;
  store::Page page_;
  std::size_t at_ = 0, pieces_ = 0;
  std::unique_ptr<codec::ArchiveWriter> archive_;
  std::string out_, sums_;
  bool finished_ = false;
};

/// Receives the content of a backup in the order of the archive. All of it is untrusted until the
/// end.
class Receiver {
 public:
  virtual ~Receiver() = default;
  virtual Status head(const Json& head) = 0;
  virtual Status file(const std::string& path, const std::string& bytes) = 0;
  virtual Status object(std::string_view key, std::string_view value) = 0;
};

Error damaged(const std::string& why) {
  return Error(Code::kCorrupt, "the backup is damaged: " + why);
}

Result<std::string> read_entry(codec::ArchiveReader& archive, const codec::ArchiveEntry& entry,
                               const std::function<Error(Error)>& unpacked) {
  const std::uint64_t most =
      entry.path.starts_with(kStore) ? kPieceBytesMax : kBackedUpFileBytesMax;
  if (entry.kind != codec::EntryKind::kFile || entry.size_bytes > most)
    return damaged(entry.path + " is not an expected file");
  std::string bytes;
  for (;;) {
    const auto piece = archive.read();
    if (!piece.ok()) return unpacked(piece.error());
    if (piece->empty()) return bytes;
    bytes += *piece;
    if (bytes.size() > most) return damaged(entry.path + " is too large");
  }
}

Result<std::uint64_t> read_objects(const std::string& path, std::string_view remaining,
                                   Receiver& to) {
  std::uint64_t count = 0;
  while (!remaining.empty()) {
    const std::size_t end = remaining.find('\n');
    const auto line = codec::parse_json(remaining.substr(0, end));
    if (end == std::string_view::npos || !line.ok())
      return damaged(path + " has no key where an object begins");
    const std::int64_t bytes = (*line)["bytes"].as_integer();
    const std::string& key = (*line)["key"].as_string();
    remaining.remove_prefix(end + 1);
    if (key.empty() || bytes < 0 || static_cast<std::uint64_t>(bytes) >= remaining.size() ||
        remaining[static_cast<std::size_t>(bytes)] != '\n')
      return damaged(path + ": the object " + key + " is incomplete");
    TRY_VOID(to.object(key, remaining.substr(0, static_cast<std::size_t>(bytes))));
    remaining.remove_prefix(static_cast<std::size_t>(bytes) + 1);
    ++count;
  }
  return count;
}

Result<BackupInfo> read_head(const std::string& path, const std::string& bytes, Receiver& to) {
  const auto parsed = codec::parse_json(bytes);
  if (path != kHead || !parsed.ok())
    return Error(Code::kCorrupt,
                 "not a backup of varda: it does not begin with " + std::string(kHead));
  const Json& json = *parsed;
  if (json["format"].as_integer() > kFormat) {
    return Error(Code::kUnsupported, "the backup was made by varda " + json["program"].as_string() +
                                         "; this is varda " VARDA_VERSION ": use varda " +
                                         json["needs"].as_string() + " or newer");
  }
  BackupInfo info{.program = json["program"].as_string(),
                  .created = json["created"].as_string(),
                  .revision = json["revision"].as_integer(),
                  .objects = static_cast<std::uint64_t>(json["objects"].as_integer()),
                  .credentials = json["credentials"].as_bool()};
  if (json["format"].as_integer() < 1) return damaged("the format is missing");
  if (info.revision < 0 || info.revision > kRevisionMax)
    return damaged("the revision is not valid");
  TRY_VOID(to.head(json));
  return info;
}

Result<BackupInfo> read_backup(codec::ByteSource source, Receiver& to) {
  const auto head = std::make_shared<std::string>();
  auto opened =
      codec::ArchiveReader::open([source = std::move(source), head]() -> Result<std::string> {
        TRY(std::string piece, source());
        if (head->size() < kZstd.size()) *head += piece.substr(0, kZstd.size());
        return piece;
      });
  if (!opened.ok()) {
    if (opened.error().code() != Code::kCorrupt) return opened.error();
    if (head->starts_with(kZstd)) return damaged(opened.error().message() + kCutOff);
    return Error(Code::kCorrupt, "not a backup of varda: " + opened.error().message());
  }
  const auto unpacked = [&head](Error error) {
    return error.code() == Code::kCorrupt && head->starts_with(kZstd)
               ? damaged(error.message() + kCutOff)
               : error;
  };
  codec::ArchiveReader& archive = **opened;
  std::optional<BackupInfo> info;
  std::string sums;
  std::uint64_t objects = 0;
  std::set<std::string> seen;
  for (;;) {
    const auto entry = archive.next();
    if (!entry.ok()) return unpacked(entry.error());
    if (!*entry) return damaged(std::string("it is incomplete") + kCutOff);
    TRY(const std::string bytes, read_entry(archive, **entry, unpacked));
    const std::string& path = (*entry)->path;
    if (path == kSums) {
      if (!info || bytes != sums) return damaged("the SHA-256 sums at the end do not match");
      break;
    }
    if (!seen.insert(path).second) return damaged(path + " occurs twice");
    sums += codec::Sha256::of(bytes).hex() + "  " + path + "\n";
    if (!info) {
      TRY(info, read_head(path, bytes, to));
    } else if (path.starts_with(kStore)) {
      TRY(const std::uint64_t count, read_objects(path, bytes, to));
      objects += count;
    } else {
      TRY_VOID(to.file(path, bytes));
    }
  }
  if (objects != info->objects)
    return damaged("it has " + std::to_string(objects) + " objects and should have " +
                   std::to_string(info->objects));
  return *info;
}

class Checker final : public Receiver {
 public:
  Status head(const Json&) override { return {}; }
  Status file(const std::string&, const std::string&) override { return {}; }
  Status object(std::string_view, std::string_view) override { return {}; }
};

/// Fills the empty directory `root`.
class Restorer final : public Receiver {
 public:
  explicit Restorer(fs::path root) : root_(std::move(root)) {}

  Status head(const Json& head) override {
    revision_ = head["revision"].as_integer();
    // The address is not restored: this may be another machine.
    for (const Json& node : head["nodes"].as_array()) {
      auto spec = parse_node(node["name"].as_string() + "=" + node["layer"].as_string());
      if (!spec.ok()) return damaged(spec.error().message());
      state_.nodes.push_back(std::move(spec).value());
    }
    for (const Json::Member& image : head["images"].as_object())
      state_.images[image.first] = image.second.as_string();
    TRY(store_, store::SqliteWriter::create(root_ / "store.db"));
    return {};
  }
  Status file(const std::string& path, const std::string& bytes) override {
    const auto& known = credential_files();
    if (path != "servers.yaml" && std::find(known.begin(), known.end(), path) == known.end())
      return damaged(path + " does not belong in a backup");
    auto& files = os::real_file_system();
    TRY_VOID(files.make_directories((root_ / path).parent_path(), 0700));
    return os::write_file_atomically(files, root_ / path, bytes,
                                     path == "pki/ca.crt" ? 0644 : 0600);
  }
  Status object(std::string_view key, std::string_view value) override {
    Status added = store_->add(key, value);
    if (!added.ok() && added.error().code() == Code::kInvalid)
      return damaged(added.error().message());
    return added;
  }

  Status finish() {
    TRY_VOID(store_->finish(store::revision_after_restore(revision_, system_clock().wall())));
    TRY_VOID(write_state(root_, state_));
    TRY_VOID(prepare_data_directory(root_));
    auto& files = os::real_file_system();
    if (const auto pki = files.stat(root_ / "pki"); pki.ok() && *pki)
      TRY_VOID(files.sync_directory(root_ / "pki"));
    return files.sync_directory(root_);
  }

 private:
  const fs::path root_;
  UpState state_;
  store::Revision revision_ = 0;
  std::unique_ptr<store::SqliteWriter> store_;
};

}  // namespace

Result<std::unique_ptr<BackupMaker>> BackupMaker::create(const Options& options, store::Page page) {
  auto& real = os::real_file_system();
  TRY(const std::optional<UpState> remembered, read_state(options.data_dir));
  const UpState state = remembered.value_or(UpState{});
  std::vector<NamedFile> files = {{kHead, head(state, page, options.credentials)}};
  std::vector<std::string> wanted = {"servers.yaml"};
  if (options.credentials == Credentials::kInclude)
    wanted.insert(wanted.end(), credential_files().begin(), credential_files().end());
  for (const std::string& path : wanted) {
    TRY(const auto existing, real.stat(options.data_dir / path));
    if (!existing) continue;
    TRY(std::string bytes, os::read_file(real, options.data_dir / path, kBackedUpFileBytesMax));
    files.push_back({path, std::move(bytes)});
  }
  auto maker = std::make_unique<Maker>(std::move(files), std::move(page));
  TRY_VOID(maker->open());
  return std::unique_ptr<BackupMaker>(std::move(maker));
}

Result<BackupInfo> check_backup(codec::ByteSource source) {
  Checker checker;
  return read_backup(std::move(source), checker);
}

Result<BackupInfo> restore_backup(codec::ByteSource source, const fs::path& data_dir) {
  auto& files = os::real_file_system();
  TRY(const auto existing, files.stat(data_dir));
  if (existing) {
    TRY(const auto names, files.list(data_dir).context("--data-dir"));
    if (!names.empty()) {
      return Error(
          Code::kAlreadyExists,
          data_dir.string() +
              " is not empty: a backup needs an empty directory; move this directory away (`mv " +
              data_dir.string() + " " + data_dir.string() +
              ".old`), or name another with --data-dir");
    }
  }
  TRY_VOID(files.make_directories(data_dir.parent_path()).context("--data-dir"));
  // Scratch files lie beside the final place, for an atomic rename. A killed restore may have left
  // some.
  const fs::path scratch = fs::path(data_dir) += ".restoring";
  TRY_VOID(files.remove_all(scratch));
  TRY_VOID(files.make_directories(scratch, 0700));
  const auto make = [&]() -> Result<BackupInfo> {
    Restorer restorer(scratch);
    TRY(BackupInfo info, read_backup(std::move(source), restorer));
    TRY_VOID(restorer.finish());
    TRY_VOID(files.rename(scratch, data_dir)
                 .context("if the data directory is a mount point, name a directory below it"));
    TRY_VOID(files.sync_directory(data_dir.parent_path()));
    return info;
  };
  auto made = make();
  if (!made.ok()) (void)files.remove_all(scratch);
  return made;
}

}  // namespace varda::datadir
