// Versions of models and lists of names as objects of a bucket: models/NAMESPACE/NAME/VERSION.json,
// names/HOLDER.json.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/context.h"
#include "registry/bucket.h"
#include "registry/versions.h"

namespace varda::registry {

/// Keeps all documents in memory, so that only changes need requests. `bucket` outlives this.
class BucketVersions final : public VersionStore {
 public:
  /// Requests end when `ctx` stops.
  BucketVersions(const Context& ctx, Bucket& bucket) : ctx_(ctx), bucket_(bucket) {}
  /// Reads every document. kCorrupt: one is damaged, so that its blobs are unknown.
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
  Status read_names();

  const Context ctx_;
  Bucket& bucket_;
  std::map<VersionKey, Version> versions_;
  std::map<std::string, std::set<codec::Sha256>> names_;  // by holder
  // Documents name these. Their creation gave no clear answer, so they may exist.
  std::set<codec::Sha256> doubtful_;
};

}  // namespace varda::registry
