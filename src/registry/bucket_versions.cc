#include "registry/bucket_versions.h"

#include <string_view>

#include "base/text.h"

namespace varda::registry {
namespace {

constexpr std::string_view kModels = "models/", kNames = "names/", kJson = ".json";
constexpr std::size_t kObjectBytesMax = 256 << 10;

std::string object_key(const VersionKey& key) {
  return std::string(kModels) + key.ns + "/" + key.name + "/" + key.version + std::string(kJson);
}

/// The reverse of object_key(). Nothing: another object.
std::optional<VersionKey> version_key(std::string_view key) {
  if (!key.ends_with(kJson)) return std::nullopt;
  key.remove_suffix(kJson.size());
  const auto route = parse_route("/v1/" + std::string(key.substr(0, key.rfind('/'))) + "/versions" +
                                 std::string(key.substr(key.rfind('/'))));
  if (!route.ok() || route->kind != Route::Kind::kVersion) return std::nullopt;
  return route->key;
}

void add_digests(std::set<codec::Sha256>& out, const Version& version) {
  out.insert(version.digest);
  if (version.chunks) out.insert(*version.chunks);
}

}  // namespace

Status BucketVersions::open() {
  TRY(const std::vector<BucketObject> objects, bucket_.list(ctx_, std::string(kModels)));
  for (const BucketObject& object : objects) {
    const auto key = version_key(object.key);
    if (!key) continue;
    TRY(const std::string text, bucket_.get(ctx_, object.key, 0, kObjectBytesMax));
    const auto json = codec::parse_json(text);
    auto version = json.ok() ? Version::from_json(*json) : Result<Version>(json.error());
    if (!version.ok()) return Error(Code::kCorrupt, object.key + ": " + version.error().message());
    versions_[*key] = std::move(*version);
  }
  return read_names();
}

Status BucketVersions::read_names() {
  TRY(const std::vector<BucketObject> objects, bucket_.list(ctx_, std::string(kNames)));
  for (const BucketObject& object : objects) {
    std::string_view holder = object.key;
    if (!holder.ends_with(kJson)) continue;
    holder.remove_prefix(kNames.size());
    holder.remove_suffix(kJson.size());
    TRY(const std::string text, bucket_.get(ctx_, object.key, 0, kNamesBytesMax));
    auto digests = parse_names(text);
    if (!digests.ok()) return Error(Code::kCorrupt, object.key + ": " + digests.error().message());
    names_[std::string(holder)] = std::move(*digests);
  }
  return {};
}

Result<Version> BucketVersions::get(const VersionKey& key) {
  const auto at = versions_.find(key);
  if (at == versions_.end()) return Error(Code::kNotFound, "there is no such version");
  return at->second;
}

Status BucketVersions::put(const VersionKey& key, const Version& version) {
  const std::string text = codec::write_json(version.to_json()) + "\n";
  const Status stored =
      bucket_.put(ctx_, object_key(key), [&text]() -> Result<std::string> { return text; });
  if (!stored.ok()) {
    add_digests(doubtful_, version);
    return stored;
  }
  versions_[key] = version;
  return {};
}

Status BucketVersions::remove(const VersionKey& key) {
  const auto at = versions_.find(key);
  if (at == versions_.end()) return Error(Code::kNotFound, "there is no such version");
  TRY_VOID(bucket_.remove(ctx_, object_key(key)));
  versions_.erase(at);
  return {};
}

Result<std::vector<VersionKey>> BucketVersions::models(const VersionKey& after, std::size_t limit) {
  std::vector<VersionKey> out;
  for (auto at = versions_.lower_bound(after); at != versions_.end() && out.size() < limit; ++at) {
    VersionKey model{.ns = at->first.ns, .name = at->first.name, .version = ""};
    if (model.ns == after.ns && model.name == after.name) continue;
    if (out.empty() || out.back() != model) out.push_back(std::move(model));
  }
  return out;
}

Result<std::vector<std::pair<std::string, Version>>> BucketVersions::list(const VersionKey& model,
                                                                          const std::string& after,
                                                                          std::size_t limit) {
  std::vector<std::pair<std::string, Version>> out;
  const VersionKey begin{.ns = model.ns, .name = model.name, .version = after};
  for (auto at = versions_.upper_bound(begin); at != versions_.end() && out.size() < limit; ++at) {
    if (at->first.ns != model.ns || at->first.name != model.name) break;
    out.emplace_back(at->first.version, at->second);
  }
  return out;
}

Status BucketVersions::put_names(const std::string& holder,
                                 const std::set<codec::Sha256>& digests) {
  const std::string key = std::string(kNames) + holder + std::string(kJson);
  // Until the bucket has the list, the blobs of both lists stay.
  std::set<codec::Sha256>& known = names_[holder];
  known.insert(digests.begin(), digests.end());
  if (digests.empty()) {
    TRY_VOID(bucket_.remove(ctx_, key));
    names_.erase(holder);
    return {};
  }
  const std::string text = write_names(digests);
  TRY_VOID(bucket_.put(ctx_, key, [&text]() -> Result<std::string> { return text; }));
  known = digests;
  return {};
}

Result<std::set<codec::Sha256>> BucketVersions::references() {
  std::set<codec::Sha256> out = doubtful_;
  for (const auto& [holder, digests] : names_) out.insert(digests.begin(), digests.end());
  for (const auto& [key, version] : versions_) add_digests(out, version);
  return out;
}

}  // namespace varda::registry
