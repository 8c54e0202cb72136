// Versions of models as documents, and lists of blobs that clusters name.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "os/file_system.h"
#include "registry/request.h"

namespace varda::registry {

/// Not thread-safe.
class VersionStore {
 public:
  virtual ~VersionStore() = default;
  /// kNotFound: no such version. kCorrupt: the stored document is damaged.
  virtual Result<Version> get(const VersionKey& key) = 0;
  /// Durable on return.
  virtual Status put(const VersionKey& key, const Version& version) = 0;
  /// kNotFound: no such version.
  virtual Status remove(const VersionKey& key) = 0;

  /// Models after `after` in order of namespace and name; without versions in the keys.
  virtual Result<std::vector<VersionKey>> models(const VersionKey& after, std::size_t limit) = 0;
  /// Versions of a model, in byte order of their names.
  virtual Result<std::vector<std::pair<std::string, Version>>> list(const VersionKey& model,
                                                                    const std::string& after,
                                                                    std::size_t limit) = 0;
  /// Replaces the list of the blobs that the objects of a cluster name. Durable on return. `holder`
  /// is a DNS label. An empty list removes it.
  virtual Status put_names(const std::string& holder, const std::set<codec::Sha256>& digests) = 0;

  /// Every digest that a version or a list names. Fails rather than miss one.
  virtual Result<std::set<codec::Sha256>> references() = 0;
};

/// The document of a list, and its reverse. kInvalid: no such document.
std::string write_names(const std::set<codec::Sha256>& digests);
Result<std::set<codec::Sha256>> parse_names(std::string_view text);
/// Limit of a document: about 200,000 digests.
inline constexpr std::size_t kNamesBytesMax = 16 << 20;

/// In files: ROOT/models/NAMESPACE/NAME/VERSION.json, ROOT/names/HOLDER.json. `fs` outlives this.
class Versions final : public VersionStore {
 public:
  Versions(os::FileSystem& fs, os::Path root) : fs_(fs), root_(std::move(root)) {}
  /// Creates the directories and removes what a crash left.
  Status open();

  Result<Version> get(const VersionKey& key) override;
  Status put(const VersionKey& key, const Version& version) override;
  Status remove(const VersionKey& key) override;
  Result<std::vector<VersionKey>> models(const VersionKey& after, std::size_t limit) override;
  Result<std::vector<std::pair<std::string, Version>>> list(const VersionKey& model,
                                                            const std::string& after,
                                                            std::size_t limit) override;
  Status put_names(const std::string& holder, const std::set<codec::Sha256>& digests) override;
  Result<std::set<codec::Sha256>> references() override;

 private:
  os::Path models_path() const { return root_ / "models"; }
  os::Path names_path() const { return root_ / "names"; }
  os::Path directory_of(const VersionKey& key) const { return models_path() / key.ns / key.name; }
  os::Path path_of(const VersionKey& key) const {
    return directory_of(key) / (key.version + ".json");
  }
  Result<std::vector<std::string>> names(const os::Path& directory);

  os::FileSystem& fs_;
  const os::Path root_;
};

}  // namespace varda::registry
