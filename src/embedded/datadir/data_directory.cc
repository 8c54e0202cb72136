#include "datadir/data_directory.h"

#include <array>

#include "base/log.h"
#include "codec/json.h"
#include "datadir/up_state.h"
#include "os/file_system.h"
#include "store/store.h"

namespace varda::datadir {
namespace {

namespace fs = std::filesystem;
using codec::Json;

constexpr int kFirstFormat = 1;                   // has no version.json
constexpr const char* kDirectoryNeeds = "0.1.0";  // the oldest program for kDirectoryFormat
constexpr const char* kVersionFile = "version.json";

// Format 2: the stores have format 2, and version.json exists. If a store is in use, its process
// upgrades the store at the next start.
Status upgrade_stores(const fs::path& data_dir) {
  auto& files = os::real_file_system();
  std::vector<fs::path> stores = {data_dir / "store.db"};
  if (const auto names = files.list(data_dir / "nodes"); names.ok()) {
    for (const std::string& name : *names)
      stores.push_back(node_directory(data_dir, name) / "data/agent.db");
  }
  for (const fs::path& store : stores) {
    TRY(const auto existing, files.stat(store));
    if (!existing) continue;
    const auto opened = store::open_sqlite(store);
    // The owner of a damaged store reports the damage or replaces the store.
    if (!opened.ok() && opened.error().code() != Code::kUnavailable &&
        opened.error().code() != Code::kCorrupt)
      return opened.error();
  }
  return {};
}

/// Step I upgrades from format I + 1 to I + 2. A killed step runs again.
constexpr std::array<Status (*)(const fs::path&), kDirectoryFormat - kFirstFormat> kSteps = {
    upgrade_stores};

Result<int> format_of(const fs::path& data_dir) {
  auto& files = os::real_file_system();
  TRY(const auto existing, files.stat(data_dir / kVersionFile));
  if (!existing) {
    for (const char* name : {"store.db", "up.json"}) {
      TRY(const auto old, files.stat(data_dir / name));
      if (old) return kFirstFormat;
    }
    return 0;
  }
  TRY(const std::string text, os::read_file(files, data_dir / kVersionFile, 1u << 20));
  const auto json = codec::parse_json(text);
  const std::int64_t format = json.ok() ? (*json)["format"].as_integer() : 0;
  if (format < kFirstFormat)
    return Error(Code::kCorrupt, (data_dir / kVersionFile).string() + " has no valid format");
  if (format <= kDirectoryFormat) return static_cast<int>(format);
  return Error(Code::kUnsupported,
               data_dir.string() + " has format " + std::to_string(format) + ", written by varda " +
                   (*json)["writtenBy"].as_string() +
                   "; this is varda " VARDA_VERSION ", which knows formats up to " +
                   std::to_string(kDirectoryFormat) + ": use varda " +
                   (*json)["needs"].as_string() + " or newer, or another --data-dir");
}

}  // namespace

Status prepare_data_directory(const fs::path& data_dir) {
  TRY(const int format, format_of(data_dir));
  if (format == kDirectoryFormat) return {};
  for (int at = std::max(format, kFirstFormat); format > 0 && at < kDirectoryFormat; ++at) {
    TRY_VOID(kSteps[static_cast<std::size_t>(at - kFirstFormat)](data_dir).context(
        "upgrade of " + data_dir.string()));
    log::info("data directory upgraded",
              {{"directory", data_dir.string()}, {"from", at}, {"to", at + 1}});
  }
  const Json version = Json::object(
      {{"format", kDirectoryFormat}, {"needs", kDirectoryNeeds}, {"writtenBy", VARDA_VERSION}});
  return os::write_file_atomically(os::real_file_system(), data_dir / kVersionFile,
                                   codec::write_json_pretty(version) + "\n", 0600);
}

Status check_first_room(const fs::path& data_dir, os::FileSystem& files) {
  // The store, its log, and its reserve twice.
  constexpr std::uint64_t kMiB = 1 << 20, kNeeded = 12 * kMiB;
  TRY(const auto existing, files.stat(data_dir / "store.db"));
  if (existing) return {};
  TRY(const os::Space space, files.space(data_dir));
  if (space.available_bytes >= kNeeded) return {};
  return Error(Code::kExhausted, "the disk of " + data_dir.string() + " has " +
                                     std::to_string(space.available_bytes / kMiB) +
                                     " MiB left, and varda needs " +
                                     std::to_string(kNeeded / kMiB) +
                                     " MiB to start: free some space there, or name a directory on "
                                     "another disk with --data-dir");
}

}  // namespace varda::datadir
