// Datasets and Models of both groups over the real API server, in memory: objects in, objects out.
// The test plays the agents and writes their reports.

#include <chrono>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <set>
#include <thread>

#include "api/edgeai/dataset.h"
#include "api/edgeai/model.h"
#include "api/kind.h"
#include "apiserver/testing/in_memory.h"
#include "base/testing/eventually.h"
#include "codec/yaml.h"
#include "controllers/controllers.h"
#include "kube/client.h"
#include "meta/patch.h"
#include "runtime/manager.h"
#include "runtime/testing/at_rest.h"

namespace varda::controllers {
namespace metadata_kinds_test {

using api::Group;
using codec::Json;

const std::string kEdgeNodes = "/apis/edgeai.io/v1alpha1/edgenodes";

Json yaml(std::string_view text) {
  auto parsed = codec::parse_yaml(text);
  EXPECT_TRUE(parsed.ok()) << text << (parsed.ok() ? "" : parsed.error().message());
  return parsed.ok() ? std::move(parsed).value() : Json();
}

class Metadata : public ::testing::Test {
 protected:
  static apiserver::InMemoryApiServer::Options with_rules() {
    apiserver::InMemoryApiServer::Options options;
    for (const api::NativeRule& rule : api::native_rules())
      options.server.rules[{rule.group, rule.kind}] = rule.check;
    options.crds = api::crds();
    return options;
  }
  Metadata() : api_(with_rules()), client_(api_.transport(), {}) { start(); }
  ~Metadata() override { stop(); }

  void start() {
    runtime::Manager::Options options;
    options.metrics = &metrics_;
    manager_ = std::make_unique<runtime::Manager>(client_, std::move(options));
    controllers_ = add_all(*manager_, {});
    thread_ = std::jthread(
        [this](std::stop_token stop) { EXPECT_TRUE(manager_->run(Context(stop)).ok()); });
  }
  void stop() {
    thread_ = {};
    manager_.reset();
    controllers_.reset();
  }

  // Waits until all controllers have processed all events.
  bool becomes_idle() {
    return runtime::testing::becomes_idle(*manager_, client_, [this] { return revision(); });
  }
  std::string revision() {
    return api_.get("/api/v1/namespaces").body.at("metadata/resourceVersion").as_string();
  }

  void post(const std::string& collection, const Json& object) {
    const auto reply = api_.post(collection, object);
    ASSERT_EQ(reply.status, 201) << reply.text;
  }
  void patch(const std::string& path, std::string_view change) {
    const auto reply = api_.merge_patch(path, yaml(change));
    ASSERT_EQ(reply.status, 200) << reply.text;
  }
  // Changes an object in a way that affects no other object; returns the new version.
  std::string touch(const std::string& path) {
    patch(path, "{metadata: {annotations: {touched: 'yes'}}}");
    return version(path);
  }
  std::string version(const std::string& path) {
    return api_.get(path).body.at("metadata/resourceVersion").as_string();
  }
  void add_agent(const std::string& name) {
    post("/api/v1/nodes", yaml("{apiVersion: v1, kind: Node, metadata: {name: " + name + "}}"));
    post(kEdgeNodes, yaml("{apiVersion: edgeai.io/v1alpha1, kind: EdgeNode, metadata: {name: " +
                          name + "}, spec: {}}"));
    patch(kEdgeNodes + "/" + name + "/status",
          "{status: {conditions: [{type: Connected, status: 'True'}]}}");
  }
  Json work(const std::string& node = "edge0") {
    return api_.get(kEdgeNodes + "/" + node).body.at("spec/datasets");
  }
  // The agent's report after it has read its work list.
  void report(const Json& datasets, const std::string& node = "edge0") {
    Json status = Json::object(
        {{"observedGeneration", api_.get(kEdgeNodes + "/" + node).body.at("metadata/generation")}});
    status.set("datasets", datasets);
    const auto reply =
        api_.merge_patch(kEdgeNodes + "/" + node + "/status", Json::object({{"status", status}}));
    ASSERT_EQ(reply.status, 200) << reply.text;
  }
  static std::string condition(const Json& object, std::string_view type, std::string_view member) {
    for (const Json& one : object.at("status/conditions").as_array()) {
      if (one["type"].as_string() == type) return one[member].as_string();
    }
    return "";
  }

  std::set<std::string> work_of(const std::string& node, const char* list) {
    std::set<std::string> out;
    for (const Json& one : api_.get(kEdgeNodes + "/" + node).body["spec"][list].as_array())
      out.insert(one["key"].as_string());
    return out;
  }
  /// Number of reconciles of a controller.
  double reconciles(const char* controller) {
    double out = 0;
    for (const char* result : {"success", "requeue_after", "error"})
      out += metrics_
                 .counter("controller_runtime_reconcile_total", "",
                          {{"controller", controller}, {"result", result}})
                 .value();
    return out;
  }
  /// metadata.generation of each EdgeNode, which shows writes of its spec.
  std::map<std::string, std::int64_t> generations() {
    std::map<std::string, std::int64_t> out;
    for (const Json& node : api_.get(kEdgeNodes).body["items"].as_array())
      out[node.at("metadata/name").as_string()] = node.at("metadata/generation").as_integer();
    return out;
  }

  metrics::Registry metrics_;
  apiserver::InMemoryApiServer api_;
  kube::Client client_;
  std::unique_ptr<runtime::Manager> manager_;
  std::unique_ptr<Controllers> controllers_;
  std::jthread thread_;
};

// Forty nodes: three copy one dataset and three another; nodes outside a claim see no work for it.
TEST_F(Metadata, ReplicaReportReconcilesOnlyNodesOfTheClaim) {
  for (int i = 0; i < 40; ++i) {
    const std::string name = "edge" + std::to_string(i);
    add_agent(name);
    patch("/api/v1/nodes/" + name, "{metadata: {labels: {line: '" +
                                       std::string(i < 3   ? "a"
                                                   : i < 6 ? "b"
                                                           : "c") +
                                       "'}}}");
    patch(kEdgeNodes + "/" + name + "/status", "{status: {peerUrl: 'https://" + name + ":10445'}}");
  }
  const auto dataset = [&](const char* name, const char* node, const char* line) {
    post("/apis/edgeai.io/v1alpha1/namespaces/default/datasets",
         yaml("{apiVersion: edgeai.io/v1alpha1, kind: Dataset, metadata: {name: " +
              std::string(name) + "}, spec: {dataUrl: /data/" + name + ", format: txt, nodeName: " +
              node + ", replication: {nodeSelector: {line: " + line + "}}}}"));
  };
  dataset("faces", "edge0", "a");
  dataset("digits", "edge3", "b");
  ASSERT_TRUE(becomes_idle());
  const auto acknowledge = [&](const std::string& node, std::string_view more) {
    patch(kEdgeNodes + "/" + node + "/status", "{status: " + std::string(more) + "}");
    ASSERT_TRUE(becomes_idle());
  };
  acknowledge("edge0",
              "{shares: [{key: datasets.edgeai.io/default/faces, path: /data/faces, state: Ready, "
              "snapshot: s1}]}");
  const std::string uid = api_.get("/apis/edgeai.io/v1alpha1/namespaces/default/datasets/faces")
                              .body.at("metadata/uid")
                              .as_string();
  const auto copy = [&](const std::string& facts) {
    return "{replicas: [{key: datasets.edgeai.io/default/faces, uid: " + uid + ", " + facts + "}]}";
  };

  acknowledge("edge1", copy("state: Pending"));
  double nodes = reconciles("edgenodes"), datasets = reconciles("datasets");
  const auto grew = [&](double node_reconciles, double dataset_reconciles, const char* why) {
    // Each change may cause two reconciles, for the old and for the new version. A reconcile within
    // the pause after a plan is deferred, and counts twice.
    EXPECT_LE(reconciles("edgenodes") - nodes, 2 * node_reconciles) << why;
    EXPECT_LE(reconciles("datasets") - datasets, dataset_reconciles) << why;
    nodes = reconciles("edgenodes");
    datasets = reconciles("datasets");
  };
  std::map<std::string, std::int64_t> before = generations();
  acknowledge("edge1", copy("state: Copying, bytesDone: 1000, bytesTotal: 2000"));
  grew(2, 4, "progress is told in the status of the dataset, and is no other node's work");
  EXPECT_EQ(generations(), before);
  acknowledge("edge15", "{agentVersion: '2'}");
  grew(2, 0, "of no claim");
  EXPECT_EQ(generations(), before);
  patch("/api/v1/nodes/edge1/status",
        "{status: {conditions: [{type: Ready, status: 'True', reason: Heartbeat}]}}");
  ASSERT_TRUE(becomes_idle());
  grew(2, 2, "a heartbeat");
  EXPECT_EQ(generations(), before);
  acknowledge("edge1", copy("state: Current, snapshot: s1, path: /copies/faces"));
  grew(12, 10, "of a claim of three");
  std::map<std::string, std::int64_t> now = generations();
  for (const char* affected : {"edge1", "edge2"})
    EXPECT_EQ(now[affected], before[affected]++ + 1) << affected;
  EXPECT_EQ(now, before) << "one more to ask, one more who shares; nobody else is written";
  patch("/api/v1/nodes/edge2", "{metadata: {labels: {line: b}}}");
  ASSERT_TRUE(becomes_idle());
  grew(24, 20,
       "both claims of three, each with one more or one less, and nobody of the other thirty-four");
  EXPECT_EQ(work_of("edge2", "replicas"),
            std::set<std::string>{"datasets.edgeai.io/default/digits"});
}

// With a pod that never ends, as on a destroyed node.
TEST_F(Metadata, ModelIsDeletedAtOnceAfterNodeRemoval) {
  const std::string models = "/apis/ai.kubeedge.io/v1alpha1/namespaces/default/inferencemodels";
  add_agent("edge0");
  post(models,
       yaml(R"({apiVersion: ai.kubeedge.io/v1alpha1, kind: InferenceModel, metadata: {name: digits},
      spec: {modelName: digits, deployToLayer: edge, nodeName: edge0, image: varda-serve}})"));
  const std::string pod = "/api/v1/namespaces/default/pods/digits";
  ASSERT_TRUE(eventually([&] { return api_.get(pod).status == 200; }));
  const auto bound = api_.post(
      pod + "/binding",
      yaml("{apiVersion: v1, kind: Binding, metadata: {name: digits}, target: {name: edge0}}"));
  ASSERT_EQ(bound.status, 201) << bound.text;
  patch(pod + "/status", "{status: {phase: Running}}");
  EXPECT_EQ(api_.remove(kEdgeNodes + "/edge0").status, 200);
  EXPECT_EQ(api_.get(kEdgeNodes + "/edge0").status, 404);
  EXPECT_EQ(api_.remove("/api/v1/nodes/edge0").status, 200);
  EXPECT_EQ(api_.get("/api/v1/nodes/edge0").status, 404);
  EXPECT_EQ(api_.remove(models + "/digits").status, 200);
  EXPECT_EQ(api_.get(models + "/digits").status, 404);
}

template <typename Kind>
class Either : public Metadata {
 protected:
  static constexpr bool kSedna = Kind::kGroup == Group::kSedna;
  const std::string objects_ = Kind::resource().path("default");

  static Json object(const std::string& name, const std::string& spec) {
    return yaml("{apiVersion: " + Kind::resource().api_version() + ", kind: " +
                Kind::resource().kind + ", metadata: {name: " + name + "}, spec: " + spec + "}");
  }
  Json get(const std::string& name) { return api_.get(objects_ + "/" + name).body; }
  bool ready_is(const std::string& name, const std::string& reason) {
    return condition(get(name), "Ready", "reason") == reason;
  }

  // The cases of src/api, through the server: schema and rules validate together.
  void send_cases(const std::string& file) {
    std::ifstream in(std::filesystem::path(VARDA_TESTDATA) / "../../api/testdata/edgeai" /
                     (file + ".yaml"));
    const auto all =
        codec::parse_yaml_stream(std::string((std::istreambuf_iterator<char>(in)), {}));
    ASSERT_TRUE(all.ok()) << all.error();
    ASSERT_GT(all->size(), 3u);
    post(objects_, all->front());
    for (std::size_t i = 1; i < all->size(); ++i) {
      const Json& test = all->at(i);
      Json wanted = meta::apply_merge_patch(all->front(), test["change"]);
      wanted["metadata"].set("name", "case-" + std::to_string(i));
      const auto reply = api_.post(objects_, wanted);
      EXPECT_EQ(reply.status, test.contains("causes") ? 422 : 201)
          << test["name"].as_string() << reply.text;
      for (const Json& cause : test["causes"].as_array()) {
        bool found = false;
        for (const Json& reported : reply.body.at("details/causes").as_array()) {
          found = found ||
                  (reported["field"] == cause["field"] && reported["reason"] == cause["reason"]);
        }
        // Rules run only after the schema has accepted the object.
        const bool of_rule =
            cause["message"].as_string().find("must be an absolute path") != std::string::npos;
        EXPECT_TRUE(found || (of_rule && test["causes"].size() > 1))
            << test["name"].as_string() << reply.text;
      }
    }
  }

  // Cells of the only row of a listing, as kubectl gets it.
  std::pair<std::vector<std::string>, std::vector<Json>> table() {
    const auto table = client_.json(Context::background(), "GET", objects_, nullptr, "",
                                    "application/json;as=Table;v=v1;g=meta.k8s.io");
    EXPECT_TRUE(table.ok()) << table.error();
    std::vector<std::string> heads;
    for (const Json& column : (*table)["columnDefinitions"].as_array())
      heads.push_back(column["name"].as_string());
    EXPECT_EQ((*table)["rows"].size(), 1u);
    return {heads, (*table).at("rows/0/cells").as_array()};
  }
};

template <typename Kind>
class Datasets : public Either<Kind> {
 protected:
  static std::string spec(const std::string& node = "edge0",
                          const std::string& path = "/data/a.csv",
                          const std::string& format = "csv") {
    return std::string(Datasets::kSedna ? "{url: " : "{dataUrl: ") + path + ", format: " + format +
           ", nodeName: " + node + "}";
  }
  void add(const std::string& name, const std::string& spec_text = spec()) {
    this->post(this->objects_, this->object(name, spec_text));
  }
  std::string key(const std::string& name) { return work_key(name); }
  static std::string work_key(const std::string& name) {
    return Kind::resource().group_resource() + "/default/" + name;
  }
  Json item(const std::string& name, std::string_view members) {
    Json out = yaml(members);
    out.set("key", key(name));
    out.set("uid", this->get(name).at("metadata/uid"));
    return out;
  }
  void count(const std::string& name, std::int64_t samples) {
    ASSERT_TRUE(eventually([&] { return this->work().size() == 1; }));
    this->report(Json::array({item(
        name, "{state: Counted, fingerprint: x, samples: " + std::to_string(samples) + "}")}));
    ASSERT_TRUE(eventually([&] {
      return this->get(name).at("status/numberOfSamples") == Json(samples);
    })) << codec::write_json(this->get(name));
    EXPECT_TRUE(eventually([&] { return this->ready_is(name, "Counted"); }));
  }
};
using DatasetKinds = ::testing::Types<api::Dataset, api::SednaDataset>;
TYPED_TEST_SUITE(Datasets, DatasetKinds);

TYPED_TEST(Datasets, InvalidDatasetIsRefusedWithFieldCauses) {
  this->send_cases(TestFixture::kSedna ? "sedna_dataset" : "dataset");
}

TYPED_TEST(Datasets, DatasetIsCountedWhenNodeExistsFirst) {
  this->add_agent("edge0");
  this->add("a");
  this->count("a", 120);
  EXPECT_EQ(this->get("a").at("status/node").as_string(), "edge0");
  this->count("a", 121);
}

TYPED_TEST(Datasets, DatasetIsCountedWhenNodeIsAddedLater) {
  this->add("a");
  ASSERT_TRUE(eventually([&] { return this->ready_is("a", "NodeUnknown"); }));
  this->add_agent("edge0");
  this->count("a", 120);
}

TYPED_TEST(Datasets, UnrelatedChangesCauseNoWrites) {
  this->add_agent("edge0");
  this->add("a");
  this->count("a", 120);
  ASSERT_TRUE(this->becomes_idle());
  // Nothing has changed except the report's own time.
  this->report(Json::array({this->item(
      "a", "{state: Counted, fingerprint: x, samples: 120, time: '2031-01-01T00:00:00Z'}")}));
  const std::string edge_node = kEdgeNodes + "/edge0", dataset = this->objects_ + "/a";
  const std::string node_version = this->touch("/api/v1/nodes/edge0"),
                    edge_node_version = this->touch(edge_node),
                    dataset_version = this->touch(dataset);
  ASSERT_TRUE(this->becomes_idle());
  this->stop();  // joins the workers, so that all pending writes are done
  EXPECT_EQ(this->version("/api/v1/nodes/edge0"), node_version);
  EXPECT_EQ(this->version(edge_node), edge_node_version);
  EXPECT_EQ(this->version(dataset), dataset_version);
}

TYPED_TEST(Datasets, MovedDatasetLeavesFirstNode) {
  this->add_agent("edge0");
  this->add_agent("edge1");
  this->add("a");
  this->count("a", 120);
  this->patch(this->objects_ + "/a", "{spec: {nodeName: edge1}}");
  EXPECT_TRUE(
      eventually([&] { return this->work("edge0").empty() && this->work("edge1").size() == 1; }));
  EXPECT_TRUE(eventually([&] { return this->get("a").at("status/numberOfSamples").is_null(); }))
      << "of another node's data";
}

TYPED_TEST(Datasets, ReportOfFormerDatasetIsIgnored) {
  this->add_agent("edge0");
  this->add("a");
  this->count("a", 120);
  const Json old = this->item("a", "{state: Counted, fingerprint: x, samples: 120}");
  this->api_.remove(this->objects_ + "/a");
  this->add("a");
  ASSERT_TRUE(
      eventually([&] { return this->work().at("0/uid") == this->get("a").at("metadata/uid"); }));
  this->report(Json::array({old}));
  ASSERT_TRUE(this->becomes_idle());
  EXPECT_TRUE(eventually([&] { return this->ready_is("a", "WaitingForNode"); }));
  EXPECT_TRUE(this->get("a").at("status/numberOfSamples").is_null());
  this->count("a", 7);
}

// Deletion never waits for a node: neither for the node's objects nor for those that refer to it.
TYPED_TEST(Datasets, DatasetIsDeletedAtOnceWithoutReachableNode) {
  this->add("never");
  this->add_agent("edge0");
  this->add("a");
  ASSERT_TRUE(eventually([&] { return this->work().size() == 2; }));
  this->patch(
      kEdgeNodes + "/edge0/status",
      "{status: {conditions: [{type: Connected, status: Unknown, reason: AgentDisconnected}]}}");
  ASSERT_TRUE(eventually([&] { return this->ready_is("a", "NodeUnreachable"); }));
  EXPECT_EQ(this->condition(this->get("a"), "Ready", "status"), "Unknown");
  EXPECT_EQ(this->api_.remove(this->objects_ + "/a").status, 200);
  EXPECT_EQ(this->api_.get(this->objects_ + "/a").status, 404) << "while the node is unreachable";

  this->add("b");
  ASSERT_TRUE(eventually([&] { return this->ready_is("b", "NodeUnreachable"); }));
  EXPECT_EQ(this->api_.remove(kEdgeNodes + "/edge0").status, 200);
  EXPECT_EQ(this->api_.get(kEdgeNodes + "/edge0").status, 404);
  EXPECT_TRUE(eventually([&] { return this->ready_is("b", "AgentMissing"); }));
  EXPECT_EQ(this->api_.remove("/api/v1/nodes/edge0").status, 200);
  EXPECT_TRUE(eventually([&] { return this->ready_is("b", "NodeUnknown"); }));
  for (const char* name : {"b", "never"}) {
    EXPECT_EQ(this->api_.remove(this->objects_ + "/" + name).status, 200);
    EXPECT_EQ(this->api_.get(this->objects_ + "/" + name).status, 404);
  }
}

TYPED_TEST(Datasets, ExcessDatasetWaitsForRoom) {
  this->add_agent("edge0");
  for (int i = 0; i < 129; ++i)
    this->add("d" + std::to_string(100 + i));  // one second: sorted by name
  ASSERT_TRUE(eventually([&] { return this->work().size() == 128; }));
  std::string left_out;
  ASSERT_TRUE(eventually([&] {
    left_out.clear();
    const Json all = this->api_.get(this->objects_).body;
    for (const Json& one : all["items"].as_array()) {
      if (this->condition(one, "Ready", "reason") == "TooManyDatasets")
        left_out += one.at("metadata/name").as_string();
    }
    return left_out.size() == 4;  // one of them
  })) << left_out;
  this->api_.remove(this->objects_ + (left_out == "d110" ? "/d111" : "/d110"));
  EXPECT_TRUE(eventually([&] { return this->ready_is(left_out, "WaitingForNode"); }));
}

TYPED_TEST(Datasets, KubectlShowsDocumentedColumns) {
  this->add_agent("edge0");
  this->add("a");
  this->count("a", 120);
  const auto [heads, cells] = this->table();
  EXPECT_EQ(heads, (std::vector<std::string>{"Name", "NumberOfSamples", "Node", "Spec", "Age"}));
  ASSERT_EQ(cells.size(), 5u);
  EXPECT_EQ(cells[0].as_string(), "a");
  EXPECT_EQ(cells[1], Json(120));
  EXPECT_EQ(cells[2].as_string(), "edge0");
  EXPECT_EQ(cells[3].as_string(),
            TestFixture::kSedna ? R"({"format":"csv","nodeName":"edge0","url":"/data/a.csv"})"
                                : R"({"dataUrl":"/data/a.csv","format":"csv","nodeName":"edge0"})");
  EXPECT_FALSE(cells[4].as_string().empty());
}

template <typename Kind>
class Models : public Either<Kind> {
 protected:
  void add(const std::string& name) {
    this->post(this->objects_,
               this->object(name, Models::kSedna ? "{url: /m.onnx, format: onnx}"
                                                 : "{modelUrl: /m.onnx, format: onnx}"));
  }
  // A node with one worker of the job `uid`, which reports about default/digits.
  void work_and_report(const std::string& uid, std::int64_t sequence, double accuracy) {
    this->patch(kEdgeNodes + "/edge0",
                "{spec: {workers: [{key: default/eval, uid: " + uid + "}]}}");
    report(uid, sequence, accuracy);
  }
  void report(const std::string& uid, std::int64_t sequence, double accuracy) {
    Json report = Json::object({{"sequence", sequence}});
    report["models"][Kind::resource().group_resource() + "/default/digits"]["metrics"].set(
        "accuracy", accuracy);
    const Json worker = Json::object({{"key", "default/eval"}, {"uid", uid}, {"report", report}});
    const Json status = Json::object({{"workers", Json::array({worker})}});
    const auto reply =
        this->api_.merge_patch(kEdgeNodes + "/edge0/status", Json::object({{"status", status}}));
    ASSERT_EQ(reply.status, 200) << reply.text;
  }
  std::string metric(const std::string& key) {
    const Json model = this->get("digits");
    for (const Json& one : model.at("status/metrics").as_array()) {
      if (one["key"].as_string() == key) return one["value"].as_string();
    }
    return "";
  }
};
using ModelKinds = ::testing::Types<api::Model, api::SednaModel>;
TYPED_TEST_SUITE(Models, ModelKinds);

TYPED_TEST(Models, InvalidModelIsRefusedWithFieldCauses) {
  this->send_cases(TestFixture::kSedna ? "sedna_model" : "model");
}

TYPED_TEST(Models, WorkerMetricsAreAddedToExistingMetrics) {
  this->add_agent("edge0");
  this->add("digits");
  ASSERT_TRUE(eventually([&] { return this->ready_is("digits", "Registered"); }));
  this->patch(this->objects_ + "/digits/status",
              "{status: {metrics: [{key: loss, value: '0.1'}]}}");
  this->work_and_report("j-1", 1, 0.5);
  ASSERT_TRUE(eventually([&] { return this->metric("accuracy") == "0.5"; }));
  EXPECT_EQ(this->metric("loss"), "0.1");
  EXPECT_TRUE(eventually([&] { return this->ready_is("digits", "Evaluated"); }));
  EXPECT_TRUE(this->get("digits").at("status/updateTime").is_string());
}

TYPED_TEST(Models, OldReportIsIgnoredAlsoAfterOperatorRestart) {
  this->add_agent("edge0");
  this->add("digits");
  this->work_and_report("j-1", 5, 0.9);
  ASSERT_TRUE(eventually([&] { return this->metric("accuracy") == "0.9"; }));
  this->stop();
  this->report("j-1", 4, 0.1);
  this->start();
  ASSERT_TRUE(this->becomes_idle());
  EXPECT_EQ(this->metric("accuracy"), "0.9");
  this->report("j-1", 6, 0.95);
  EXPECT_TRUE(eventually([&] { return this->metric("accuracy") == "0.95"; }));
  this->report("j-0", 9, 0.2);  // the worker's previous job
  ASSERT_TRUE(this->becomes_idle());
  EXPECT_EQ(this->metric("accuracy"), "0.95");
}

TYPED_TEST(Models, NewModelGetsMetricsOfEarlierReports) {
  this->add_agent("edge0");
  this->work_and_report("j-1", 5, 0.9);
  this->add("digits");
  EXPECT_TRUE(eventually([&] { return this->metric("accuracy") == "0.9"; }));
}

TYPED_TEST(Models, ModelIsDeletedAtOnceAfterNodeRemoval) {
  this->add_agent("edge0");
  this->add("digits");
  this->work_and_report("j-1", 5, 0.9);
  ASSERT_TRUE(eventually([&] { return this->metric("accuracy") == "0.9"; }));
  this->api_.remove(kEdgeNodes + "/edge0");
  this->api_.remove("/api/v1/nodes/edge0");
  ASSERT_TRUE(this->becomes_idle());
  EXPECT_EQ(this->metric("accuracy"), "0.9");
  EXPECT_EQ(this->api_.remove(this->objects_ + "/digits").status, 200);
  EXPECT_EQ(this->api_.get(this->objects_ + "/digits").status, 404);
}

TYPED_TEST(Models, UnrelatedChangesCauseNoWrites) {
  this->add_agent("edge0");
  this->add("digits");
  this->work_and_report("j-1", 5, 0.9);
  ASSERT_TRUE(eventually([&] { return this->metric("accuracy") == "0.9"; }));
  ASSERT_TRUE(eventually([&] { return this->work().is_array(); }));
  ASSERT_TRUE(this->becomes_idle());
  const std::string edge_node = kEdgeNodes + "/edge0", model = this->objects_ + "/digits";
  const std::string edge_node_version = this->touch(edge_node), model_version = this->touch(model);
  ASSERT_TRUE(this->becomes_idle());
  this->stop();  // joins the workers, so that all pending writes are done
  EXPECT_EQ(this->version(edge_node), edge_node_version);
  EXPECT_EQ(this->version(model), model_version);
}

TYPED_TEST(Models, KubectlShowsDocumentedColumns) {
  this->add("digits");
  this->patch(
      this->objects_ + "/digits/status",
      "{status: {updateTime: '2024-05-01T12:00:00Z', metrics: [{key: accuracy, value: '0.93'}]}}");
  const auto [heads, cells] = this->table();
  EXPECT_EQ(heads, (std::vector<std::string>{"Name", "updateAGE", "metrics"}));
  ASSERT_EQ(cells.size(), 3u);
  EXPECT_TRUE(cells[1].as_string().ends_with("d") || cells[1].as_string().ends_with("y"))
      << cells[1].as_string();
  EXPECT_EQ(cells[2].as_string(), R"([{"key":"accuracy","value":"0.93"}])");
}

}  // namespace metadata_kinds_test
}  // namespace varda::controllers
