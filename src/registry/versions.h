// Versions of models as documents.
#pragma once

#include <set>
#include <string>
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
  /// Every digest that a version names. Fails rather than miss one.
  virtual Result<std::set<codec::Sha256>> references() = 0;
};

/// In files: ROOT/models/NAMESPACE/NAME/VERSION.json. `fs` outlives this.
class Versions final : public VersionStore {
 public:
  Versions(os::FileSystem& fs, os::Path root) : fs_(fs), root_(std::move(root)) {}
  /// Creates ROOT/models and removes what a crash left.
  Status open();

  Result<Version> get(const VersionKey& key) override;
  Status put(const VersionKey& key, const Version& version) override;
  Status remove(const VersionKey& key) override;
  Result<std::vector<VersionKey>> models(const VersionKey& after, std::size_t limit) override;
  Result<std::vector<std::pair<std::string, Version>>> list(const VersionKey& model,
                                                            const std::string& after,
                                                            std::size_t limit) override;
  Result<std::set<codec::Sha256>> references() override;

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
