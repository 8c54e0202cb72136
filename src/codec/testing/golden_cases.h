// Golden cases: a folder of YAML files, one a topic, each case a difference to another case.
//
//   ---
//   name: no_policy
//   claim: Without a policy every answer of the first tier is final.
//   from: base/two_models_exposed
//   objects: [agent, old_pod=pod]
//   given:
//     service.spec.edgeWorker.hardExampleMining: null
//   expect:
//     objects[Pod]: null
//     status.conditions[Ready]: {reason: WaitingForNode, message: waiting for node edge0}
//
// `name` is unique in the folder. `claim` says in one or two sentences what the case proves.
// `from` names the case that `given` and `expect` differ from: CASE of this file or FILE/CASE.
// `objects` takes objects of the folder's objects.yaml, where NEW=NAME gives another name.
// `given` and `expect` are differences: PATH: VALUE (see apply_difference).
//
// UPDATE_GOLDEN=1 rewrites `expect` of cases that differ, in one process, and the test fails.
// Every other line of a file stays; comments inside of a rewritten `expect` are lost.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "codec/json.h"

namespace varda::codec::testing {

/// Paths and values, in order.
using Difference = Json::Object;

/// Applies each PATH: VALUE. A path is names separated by dots. [TEXT] is a name with any
/// characters, an index, or the item of a list that has TEXT as its first of key, name, type,
/// version, url, node. An API object is named by its kind, or KIND/NAME among several of the kind.
/// [A before B] inserts a new item before another; [A] appends it. An object merges into an
/// existing object; other values replace. Null removes what exists.
/// kInvalid: the path leads through a value that has no members, or names no item.
Result<Json> apply_difference(Json value, const Difference& difference);
/// The shortest difference found that leads from `from` to `to`.
Difference make_difference(const Json& from, const Json& to);
/// The difference as lines of a case file, indented by two.
std::string write_difference(const Difference& difference);

struct GoldenCase {
  std::string topic;  // the file without .yaml
  std::string name;
  std::string claim;
  Json given;   // expanded: objects by name
  Json expect;  // expanded
};

/// One folder. Problems of the files fail every use of at() and check().
class GoldenCases {
 public:
  explicit GoldenCases(std::filesystem::path folder);

  /// Names in the order of the files: parameters of a test suite. Never empty.
  std::vector<std::string> names() const;
  /// Fails the test if there is no such case.
  const GoldenCase& at(const std::string& name) const;
  /// Fails unless `actual` is the expectation. Shows the claim and each differing path.
  void check(const std::string& name, const Json& actual);

 private:
  struct Entry {
    GoldenCase expanded;
    std::string from;  // "" for none
  };
  void read(const std::filesystem::path& file);
  void expand(const std::string& name, const std::map<std::string, Json>& documents);
  void rewrite(const std::string& name);
  void complain(const std::string& problem) { problems_ += problem + "\n"; }

  std::filesystem::path folder_;
  std::map<std::string, Json> library_;    // objects.yaml
  std::map<std::string, Json> documents_;  // cases as read
  std::vector<std::string> order_;
  std::map<std::string, Entry> cases_;
  std::string problems_;
};

}  // namespace varda::codec::testing
