// History of a DaemonSet, simulated without an API server: templates change, written revisions are
// the state.

#include "cluster/internal/daemon_set_history.h"

#include <gtest/gtest.h>
#include <map>
#include <set>

#include "cluster/internal/daemon_set.h"
#include "codec/yaml.h"

namespace varda::cluster {
namespace daemon_set_history_test {

using namespace std::chrono_literals;

class Played {
 public:
  explicit Played(const std::string& more = "")
      : set_(*codec::parse_yaml("{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: d, "
                                "namespace: default, uid: u}, spec: "
                                "{selector: {matchLabels: {app: d}}, " +
                                more +
                                "template: {metadata: {labels: {app: d}}, spec: {containers: "
                                "[{name: c, image: one}]}}}}")) {}

  void change_image(const std::string& image) {
    set_["spec"]["template"]["spec"]["containers"].array_items()[0].set("image", image);
  }
  void annotate(const std::string& name, const std::string& value) {
    set_["metadata"].make("annotations").set(name, value);
  }
  void be_recreated() { set_["metadata"].set("uid", "u2"); }
  api::DaemonSet set() const { return *api::DaemonSet::from_json(set_); }
  /// A pod of the current template, as the DaemonSet creates it.
  PodPtr pod() const {
    const auto node = api::Node::from_json(
        *codec::parse_yaml("{apiVersion: v1, kind: Node, metadata: {name: edge0}, status: "
                           "{conditions: [{type: Ready, status: 'True'}]}}"));
    DaemonSetPlan plan =
        plan_daemon_set(set(), {std::make_shared<const api::Node>(*node)}, {}, WallTime(), 10s);
    Json made = plan.changes.create.at(0);
    made["metadata"].set("name", "d-1");
    return std::make_shared<const api::Pod>(*api::Pod::from_json(made));
  }

  DaemonSetHistory plan(const PodList& pods = {}) const {
    std::vector<RevisionPtr> all;
    for (const auto& [name, json] : revisions)
      all.push_back(std::make_shared<const api::ControllerRevision>(
          *api::ControllerRevision::from_json(json)));
    return plan_history(set(), all, pods);
  }
  /// Plans, and applies the plan as write_history() does.
  void step(const PodList& pods = {}) {
    const DaemonSetHistory history = plan(pods);
    for (const RevisionPtr& revision : history.adopt) own(revisions.at(revision->metadata.name));
    if (history.create) {
      Json made = *history.create;
      own(made);
      const std::string name = std::as_const(made).at("metadata/name").as_string();
      EXPECT_TRUE(revisions.emplace(name, made).second) << name;
    }
    if (history.renumber)
      revisions.at(history.renumber->metadata.name).set("revision", history.number);
    for (const RevisionPtr& revision : history.remove) revisions.erase(revision->metadata.name);
  }
  /// {number: image}
  std::map<std::int64_t, std::string> images() const {
    std::map<std::int64_t, std::string> out;
    for (const auto& [name, json] : revisions)
      out[json["revision"].as_integer()] +=
          json.at("data/spec/template/spec/containers/0/image").as_string();
    return out;
  }

  std::map<std::string, Json> revisions;

 private:
  void own(Json& revision) {
    revision["metadata"].set(
        "ownerReferences",
        Json::array({Json::object({{"apiVersion", "apps/v1"},
                                   {"kind", "DaemonSet"},
                                   {"name", "d"},
                                   {"uid", std::as_const(set_).at("metadata/uid").as_string()},
                                   {"controller", true}})}));
  }

  Json set_;
};

using Images = std::map<std::int64_t, std::string>;

bool nothing(const DaemonSetHistory& history) {
  return history.adopt.empty() && !history.create && !history.renumber && history.remove.empty();
}

TEST(DaemonSetHistory, EachTemplateHasRevisionAndRollbackRenumbersIt) {
  Played daemon;
  daemon.step();
  EXPECT_EQ(daemon.images(), (Images{{1, "one"}}));
  EXPECT_TRUE(nothing(daemon.plan()));
  daemon.change_image("two");
  daemon.step();
  EXPECT_EQ(daemon.images(), (Images{{1, "one"}, {2, "two"}}));
  daemon.change_image("one");
  daemon.step();
  EXPECT_EQ(daemon.images(), (Images{{2, "two"}, {3, "one"}}));
  EXPECT_TRUE(nothing(daemon.plan()));
  daemon.change_image("three");
  daemon.step();
  EXPECT_EQ(daemon.images(), (Images{{2, "two"}, {3, "one"}, {4, "three"}}));
}

TEST(DaemonSetHistory, RevisionHoldsTemplatePatchAndPodHash) {
  Played daemon;
  daemon.annotate("kubernetes.io/change-cause", "first");
  daemon.step();
  ASSERT_EQ(daemon.revisions.size(), 1u);
  const Json& revision = daemon.revisions.begin()->second;
  const std::string hash = daemon.pod()->metadata.labels.at(std::string(kRevisionHashLabel));
  EXPECT_EQ(revision.at("metadata/name").as_string(), "d-" + hash);
  EXPECT_EQ(revision.at("metadata/labels").as_object().size(), 2u);
  EXPECT_EQ(revision.at("metadata/labels/app").as_string(), "d");
  EXPECT_EQ(revision.at("metadata/labels")[kRevisionHashLabel].as_string(), hash);
  EXPECT_EQ(revision.at("metadata/annotations")["kubernetes.io/change-cause"].as_string(), "first");
  EXPECT_EQ(revision["data"],
            *codec::parse_yaml("{spec: {template: {$patch: replace, metadata: {labels: {app: d}}, "
                               "spec: {containers: [{name: c, image: one}]}}}}"));
}

TEST(DaemonSetHistory, OldestUnusedRevisionsBeyondLimitAreDeleted) {
  Played daemon("revisionHistoryLimit: 2, ");
  daemon.step();
  const PodPtr first = daemon.pod();
  for (const char* image : {"two", "three", "four", "five"}) {
    daemon.change_image(image);
    daemon.step({first});
  }
  EXPECT_EQ(daemon.images(), (Images{{1, "one"}, {4, "four"}, {5, "five"}}));
  daemon.change_image("six");
  daemon.step();  // the pod was deleted
  daemon.step();
  EXPECT_EQ(daemon.images(), (Images{{4, "four"}, {5, "five"}, {6, "six"}}));
  EXPECT_TRUE(nothing(daemon.plan()));

  Played none("revisionHistoryLimit: 0, ");
  for (const char* image : {"one", "two", "three"}) {
    none.change_image(image);
    none.step();
    none.step();
  }
  EXPECT_EQ(none.images(), (Images{{3, "three"}}));

  Played many;
  for (int i = 0; i < 15; ++i) {
    many.change_image(std::to_string(i));
    many.step();
    many.step();
  }
  EXPECT_EQ(many.images().size(), 11u);
  EXPECT_EQ(many.images().begin()->first, 5);
}

TEST(DaemonSetHistory, OrphanedRevisionsAreAdoptedAndForeignOnesIgnored) {
  Played daemon;
  daemon.step();
  daemon.change_image("two");
  daemon.step();
  // Deleted with --cascade=orphan and created again; meanwhile one revision got another owner.
  daemon.be_recreated();
  for (auto& [name, json] : daemon.revisions) json["metadata"].erase("ownerReferences");
  daemon.change_image("one");
  daemon.step();
  EXPECT_EQ(daemon.images(), (Images{{2, "two"}, {3, "one"}}));
  EXPECT_TRUE(nothing(daemon.plan()));
  Played foreign;
  foreign.be_recreated();
  foreign.revisions = daemon.revisions;
  for (auto& [name, json] : foreign.revisions)
    json["metadata"]["ownerReferences"].array_items()[0].set("uid", "somebody");
  const DaemonSetHistory own = foreign.plan();
  EXPECT_TRUE(own.adopt.empty());
  EXPECT_EQ(own.number, 1);
}

}  // namespace daemon_set_history_test
}  // namespace varda::cluster
