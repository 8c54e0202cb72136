// The kinds now served: built-in ones and those of stored CRDs.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "apiserver/kind.h"
#include "apiserver/kinds/crd.h"
#include "base/mutex.h"
#include "store/store.h"

namespace varda::apiserver {

/// A snapshot; immutable.
class KindSet {
 public:
  explicit KindSet(std::vector<KindPtr> kinds);
  /// Finds a kind by path; null if not served.
  KindPtr find(std::string_view group, std::string_view version, std::string_view plural) const;
  /// Any version of the resource.
  KindPtr find(std::string_view group, std::string_view plural) const;
  /// Finds a kind by apiVersion and kind, as in owner references; any version of the group.
  KindPtr by_kind(std::string_view api_version, std::string_view kind) const;
  /// The kind and the object that a storage key belongs to.
  struct Located {
    KindPtr kind;
    meta::ObjectKey key;
  };
  Located locate(std::string_view storage_key) const;

  struct GroupVersion {
    std::string version;
    std::vector<KindPtr> kinds;
  };
  struct Group {
    std::string name;                    // "" for core
    std::vector<GroupVersion> versions;  // preferred first
  };
  /// Core first, then in the order of discovery.
  const std::vector<Group>& groups() const { return groups_; }
  const GroupVersion* group_version(std::string_view group, std::string_view version) const;
  const std::vector<KindPtr>& all() const { return kinds_; }
  /// One kind per resource, whatever its version. Kinds without stored objects are left out.
  const std::vector<KindPtr>& stored() const { return stored_; }

 private:
  std::vector<KindPtr> kinds_;
  std::vector<KindPtr> stored_;
  std::vector<Group> groups_;
  std::map<std::tuple<std::string, std::string, std::string>, KindPtr, std::less<>> by_path_;
  std::map<std::string, KindPtr, std::less<>> by_prefix_;
};

/// Thread-safe.
class Registry {
 public:
  Registry(store::Store& store, NativeRules rules);
  std::shared_ptr<const KindSet> kinds() const;
  /// Reloads the CRDs; called after each write of one. A Kind is reused until the spec of the CRD
  /// changes.
  Status refresh();

 private:
  store::Store& store_;
  const NativeRules rules_;
  const std::vector<KindPtr> core_;
  Mutex refreshing_;  // one refresh at a time, so that an older list never replaces a newer one
  mutable Mutex mutex_;
  struct Known {
    store::Revision modified = 0;
    Json spec;
    std::vector<KindPtr> kinds;
  };
  std::map<std::string, Known> crds_ GUARDED_BY(refreshing_);
  std::shared_ptr<const KindSet> kinds_ GUARDED_BY(mutex_);
};

inline constexpr std::string_view kCrdGroup = "apiextensions.k8s.io";
inline constexpr std::string_view kCrdPlural = "customresourcedefinitions";

}  // namespace varda::apiserver
