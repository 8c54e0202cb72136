#include "registry/versions.h"

#include <algorithm>
#include <limits>
#include <string_view>

namespace varda::registry {
namespace {

constexpr std::string_view kEnding = ".json";
constexpr std::size_t kFileBytesMax = 256 << 10;

}  // namespace

std::string write_names(const std::set<codec::Sha256>& digests) {
  codec::Json all = codec::Json::array();
  for (const codec::Sha256& digest : digests) all.push_back(write_digest(digest));
  return codec::write_json(codec::Json::object({{"digests", std::move(all)}})) + "\n";
}

Result<std::set<codec::Sha256>> parse_names(std::string_view text) {
  TRY(const codec::Json json, codec::parse_json(text));
  if (!json.is_object() || json.size() != 1 || !json["digests"].is_array())
    return Error(Code::kInvalid, "the list must be an object with the array \"digests\"");
  std::set<codec::Sha256> out;
  for (const codec::Json& one : json["digests"].as_array()) {
    TRY(const codec::Sha256 digest, parse_digest(one.as_string()).context("digests"));
    out.insert(digest);
  }
  return out;
}

Status Versions::open() {
  TRY_VOID(fs_.make_directories(models_path(), 0755));
  TRY_VOID(fs_.make_directories(names_path(), 0755));
  TRY_VOID(fs_.sync_directory(root_));
  TRY_VOID(os::remove_leftovers(fs_, names_path()));
  TRY(const auto models_all, models({}, std::numeric_limits<std::size_t>::max()));
  for (const VersionKey& model : models_all)
    TRY_VOID(os::remove_leftovers(fs_, directory_of(model)));
  return {};
}

Result<std::vector<std::string>> Versions::names(const os::Path& directory) {
  TRY(const auto info, fs_.stat(directory));
  if (!info || info->kind != os::FileKind::kDirectory) return std::vector<std::string>();
  return fs_.list(directory);
}

Result<Version> Versions::get(const VersionKey& key) {
  const os::Path path = path_of(key);
  TRY(const auto info, fs_.stat(path));
  if (!info) return Error(Code::kNotFound, "there is no such version");
  TRY(const std::string text, os::read_file(fs_, path, kFileBytesMax));
  const auto json = codec::parse_json(text);
  auto version = json.ok() ? Version::from_json(*json) : Result<Version>(json.error());
  if (!version.ok()) return Error(Code::kCorrupt, path.string() + ": " + version.error().message());
  return version;
}

Status Versions::put(const VersionKey& key, const Version& version) {
  const os::Path directory = directory_of(key);
  TRY_VOID(fs_.make_directories(directory, 0755));
  TRY_VOID(fs_.sync_directory(models_path()));
  TRY_VOID(fs_.sync_directory(models_path() / key.ns));
  return os::write_file_atomically(fs_, path_of(key), codec::write_json(version.to_json()) + "\n");
}

Status Versions::remove(const VersionKey& key) {
  const os::Path path = path_of(key), directory = directory_of(key);
  TRY(const auto info, fs_.stat(path));
  if (!info) return Error(Code::kNotFound, "there is no such version");
  TRY_VOID(fs_.remove(path));
  TRY_VOID(fs_.sync_directory(directory));
  // Directories with other content stay.
  if (fs_.remove(directory).ok()) (void)fs_.remove(directory.parent_path());
  return {};
}

Result<std::vector<VersionKey>> Versions::models(const VersionKey& after, std::size_t limit) {
  std::vector<VersionKey> out;
  TRY(const auto namespaces, names(models_path()));
  for (const std::string& ns : namespaces) {
    if (ns < after.ns) continue;
    TRY(const auto models_here, names(models_path() / ns));
    for (const std::string& name : models_here) {
      if (out.size() == limit) return out;
      if (ns == after.ns && name <= after.name) continue;
      out.push_back({.ns = ns, .name = name, .version = ""});
    }
  }
  return out;
}

Result<std::vector<std::pair<std::string, Version>>> Versions::list(const VersionKey& model,
                                                                    const std::string& after,
                                                                    std::size_t limit) {
  std::vector<std::string> versions;
  TRY(const auto files, names(directory_of(model)));
  for (const std::string& file : files) {
    if (!file.ends_with(kEnding)) continue;
    versions.push_back(file.substr(0, file.size() - kEnding.size()));
  }
  // The ending changes the order: "1-a.json" is before "1.json".
  std::sort(versions.begin(), versions.end());
  std::vector<std::pair<std::string, Version>> out;
  for (const std::string& version : versions) {
    if (out.size() == limit) break;
    if (version <= after) continue;
    VersionKey key = model;
    key.version = version;
    TRY(Version document, get(key));
    out.emplace_back(version, std::move(document));
  }
  return out;
}

Status Versions::put_names(const std::string& holder, const std::set<codec::Sha256>& digests) {
  const os::Path path = names_path() / (holder + std::string(kEnding));
  if (!digests.empty()) return os::write_file_atomically(fs_, path, write_names(digests));
  TRY(const auto info, fs_.stat(path));
  if (!info) return {};
  TRY_VOID(fs_.remove(path));
  return fs_.sync_directory(names_path());
}

Result<std::set<codec::Sha256>> Versions::references() {
  std::set<codec::Sha256> out;
  TRY(const auto holders, names(names_path()));
  for (const std::string& file : holders) {
    if (!file.ends_with(kEnding)) continue;
    TRY(const std::string text, os::read_file(fs_, names_path() / file, kNamesBytesMax));
    auto digests = parse_names(text);
    if (!digests.ok()) return Error(Code::kCorrupt, file + ": " + digests.error().message());
    out.merge(*digests);
  }
  constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();
  TRY(const auto models_all, models({}, kAll));
  for (const VersionKey& model : models_all) {
    TRY(const auto versions, list(model, "", kAll));
    for (const auto& [name, version] : versions) {
      out.insert(version.digest);
      if (version.chunks) out.insert(*version.chunks);
    }
  }
  return out;
}

}  // namespace varda::registry
