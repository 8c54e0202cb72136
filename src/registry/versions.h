// Versions of models as documents: ROOT/models/NAMESPACE/NAME/VERSION.json.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "os/file_system.h"
#include "registry/request.h"

namespace varda::registry {

/// Not thread-safe. `fs` outlives this.
class Versions {
 public:
  Versions(os::FileSystem& fs, os::Path root) : fs_(fs), root_(std::move(root)) {}
  /// Creates ROOT/models and removes what a crash left.
  Status open();

  /// kNotFound: no such version. kCorrupt: the file on the disk is damaged.
  Result<Version> get(const VersionKey& key);
  /// Durable on return.
  Status put(const VersionKey& key, const Version& version);
  /// kNotFound: no such version.
  Status remove(const VersionKey& key);

  /// Models after `after` in order of namespace and name; without versions in the keys.
  Result<std::vector<VersionKey>> models(const VersionKey& after, std::size_t limit);
  /// Versions of a model, in byte order of their names.
  Result<std::vector<std::pair<std::string, Version>>> list(const VersionKey& model,
                                                            const std::string& after,
                                                            std::size_t limit);
  /// Every digest that a version names. Fails rather than miss one.
  Result<std::set<codec::Sha256>> references();

 private:
  os::Path models_path() const { return root_ / "models"; }
  os::Path directory_of(const VersionKey& key) const { return models_path() / key.ns / key.name; }
  os::Path path_of(const VersionKey& key) const {
    return directory_of(key) / (key.version + ".json");
  }
  Result<std::vector<std::string>> names(const os::Path& directory);

  os::FileSystem& fs_;
  const os::Path root_;
};

}  // namespace varda::registry
