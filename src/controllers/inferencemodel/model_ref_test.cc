// InferenceModels with a modelRef over the real API server, in memory. The test plays the agent,
// the runner, and the jobs that report metrics.

#include <gtest/gtest.h>
#include <string>
#include <string_view>

#include "controllers/testing/control_plane.h"

namespace varda::controllers::inferencemodel {
namespace model_ref_test {

using codec::Json;

const std::string kEdgeaiModels = "/apis/edgeai.io/v1alpha1/namespaces/default/models";
const std::string kDigits = testing::kInferenceModels + "/digits";

class ModelRef : public testing::ControlPlane {
 protected:
  void add_edge_node() {
    add_node("edge0", "{kubernetes.io/hostname: edge0, node-role.kubernetes.io/edge: ''}");
    add_agent("edge0");
  }
  // A Model of edgeai.io whose archive has only the digit in its digest.
  void add_model(const std::string& name, char digit, std::string_view accuracy = "") {
    post(kEdgeaiModels, "{apiVersion: edgeai.io/v1alpha1, kind: Model, metadata: {name: " + name +
                            "}, spec: {modelUrl: 'http://f/" + digit +
                            ".tar.gz', format: onnx, version: '" + digit + "', sha256: '" +
                            std::string(64, digit) + "'}}");
    if (!accuracy.empty()) set_accuracy(name, accuracy);
  }
  void set_accuracy(const std::string& name, std::string_view accuracy) {
    patch_status(kEdgeaiModels + "/" + name,
                 "{metrics: [{key: accuracy, value: '" + std::string(accuracy) + "'}]}");
  }
  void add_inference_model(std::string_view model_ref) {
    post(testing::kInferenceModels,
         "{apiVersion: ai.kubeedge.io/v1alpha1, kind: InferenceModel, metadata: {name: digits}, "
         "spec: {modelName: digits, deployToLayer: edge, nodeName: edge0, modelRef: " +
             std::string(model_ref) + "}}");
  }

  Json status() { return get(kDigits)["status"]; }
  std::string condition(std::string_view type, std::string_view member) {
    const Json now = status();
    for (const Json& one : now["conditions"].as_array()) {
      if (one["type"].as_string() == type) return one[member].as_string();
    }
    return "";
  }
  std::string chosen(std::string_view member) { return status()["modelRef"][member].as_string(); }
  Json work() {
    const Json models = get(testing::kEdgeNodes + "/edge0").at("spec/models");
    return models.empty() ? Json() : models.as_array().front();
  }
  // "3 4": the versions in the node's work list.
  std::string held() {
    std::string out;
    const Json item = work();
    for (const Json& version : item["versions"].as_array())
      out += (out.empty() ? "" : " ") + version["version"].as_string();
    return out;
  }
  std::string pod_uid() { return get(testing::kPods + "/digits").at("metadata/uid").as_string(); }

  // Plays the agent: `exposed` serves, and all versions in `versions` are present.
  void report(const std::string& exposed, std::string_view versions) {
    std::string items;
    for (const char version : versions)
      items += (items.empty() ? "" : ", ") + ("{version: '" + std::string(1, version)) +
               "', state: Ready}";
    patch_status(testing::kEdgeNodes + "/edge0",
                 "{models: [{key: default/digits, exposed: '" + exposed + "', versions: [" + items +
                     "], serving: {version: '" + exposed + "', state: Ready}}]}");
  }
  void serve(const std::string& version) {
    ASSERT_TRUE(eventually([&] { return work()["target"].as_string() == version; }))
        << codec::write_json(status());
    report(version, version);
    ASSERT_TRUE(eventually([&] { return exists(testing::kPods + "/digits"); }));
    const auto bound =
        api_.post(testing::kPods + "/digits/binding",
                  testing::yaml("{apiVersion: v1, kind: Binding, metadata: {name: digits}, target: "
                                "{kind: Node, name: edge0}}"));
    ASSERT_EQ(bound.status, 201) << bound.text;
    patch_status(testing::kPods + "/digits",
                 "{phase: Running, hostIP: 127.9.1.1, podIP: 127.9.1.1, conditions: [{type: Ready, "
                 "status: 'True'}]}");
    ASSERT_TRUE(eventually([&] { return serves(version); })) << codec::write_json(status());
  }
  bool serves(const std::string& version) {
    return status()["servingVersion"].as_string() == version &&
           condition("Ready", "status") == "True" &&
           condition("TargetVersionReady", "status") == "True";
  }
};

TEST_F(ModelRef, ModelBeforeInferenceModelServes) {
  add_edge_node();
  add_model("digits", '3');
  add_inference_model("{name: digits}");
  serve("3");
  EXPECT_EQ(chosen("group"), "edgeai.io");
  EXPECT_EQ(chosen("name"), "digits");
  EXPECT_EQ(chosen("version"), "3");
  EXPECT_EQ(work()["framework"].as_string(), "onnx");
}

TEST_F(ModelRef, InferenceModelBeforeModelServes) {
  add_edge_node();
  add_inference_model("{name: digits}");
  ASSERT_TRUE(eventually([&] { return condition("Ready", "reason") == "ModelNotFound"; }));
  EXPECT_EQ(condition("Ready", "message"), "there is no Model digits");
  EXPECT_TRUE(work().is_null());
  add_model("digits", '3');
  serve("3");
}

TEST_F(ModelRef, ModelInBothGroupsNeedsAGroup) {
  add_edge_node();
  add_model("digits", '3');
  post(testing::kModels,
       "{apiVersion: sedna.io/v1alpha1, kind: Model, metadata: {name: digits}, spec: {url: "
       "'http://f/4.tar.gz', format: onnx, version: '4', sha256: '" +
           std::string(64, '4') + "'}}");
  add_inference_model("{name: digits}");
  // The operator may have seen and chosen one of the Models before the other one.
  ASSERT_TRUE(
      eventually([&] { return condition("TargetVersionReady", "reason") == "ModelAmbiguous"; }));
  patch(kDigits, "{spec: {modelRef: {group: sedna.io}}}");
  serve("4");
  EXPECT_EQ(chosen("group"), "sedna.io");
}

TEST_F(ModelRef, ChangedModelKeepsThePodAndTheFormerArchive) {
  add_edge_node();
  add_model("digits", '3');
  add_inference_model("{name: digits}");
  serve("3");
  const std::string uid = pod_uid();
  patch(kEdgeaiModels + "/digits",
        "{spec: {modelUrl: 'http://f/4.tar.gz', version: '4', sha256: '" + std::string(64, '4') +
            "'}}");
  ASSERT_TRUE(eventually([&] { return work()["target"].as_string() == "4"; }));
  EXPECT_EQ(held(), "3 4");
  EXPECT_EQ(condition("Ready", "status"), "True");
  EXPECT_EQ(status()["servingVersion"].as_string(), "3");

  // The Model no longer names version 3. An operator without memory still holds it.
  ASSERT_TRUE(becomes_idle());
  stop();
  EXPECT_TRUE(restart_writes_nothing());
  EXPECT_EQ(held(), "3 4");
  start();

  report("4", "34");
  ASSERT_TRUE(eventually([&] { return serves("4"); })) << codec::write_json(status());
  EXPECT_EQ(pod_uid(), uid) << "the pod was recreated";
  EXPECT_TRUE(eventually([&] { return held() == "3 4"; })) << "a rollback needs no network";

  // The former content of the Model again: a rollback.
  patch(kEdgeaiModels + "/digits",
        "{spec: {modelUrl: 'http://f/3.tar.gz', version: '3', sha256: '" + std::string(64, '3') +
            "'}}");
  ASSERT_TRUE(eventually([&] { return work()["target"].as_string() == "3"; }));
  report("3", "34");
  ASSERT_TRUE(eventually([&] { return serves("3"); }));
  EXPECT_EQ(pod_uid(), uid) << "the pod was recreated";
}

TEST_F(ModelRef, DeletedModelKeepsServing) {
  add_edge_node();
  add_model("digits", '3');
  add_inference_model("{name: digits}");
  serve("3");
  api_.remove(kEdgeaiModels + "/digits");
  ASSERT_TRUE(
      eventually([&] { return condition("TargetVersionReady", "reason") == "ModelNotFound"; }));
  EXPECT_EQ(condition("Ready", "status"), "True");
  ASSERT_TRUE(becomes_idle());
  EXPECT_EQ(held(), "3");
  EXPECT_EQ(work()["target"].as_string(), "3");
  stop();
  EXPECT_TRUE(restart_writes_nothing());
}

TEST_F(ModelRef, SelectorFollowsTheBetterModel) {
  add_edge_node();
  add_inference_model("{selector: {metric: accuracy, atLeast: 0.9}}");
  ASSERT_TRUE(eventually([&] { return condition("Ready", "reason") == "ModelNotFound"; }));
  add_model("a", '3', "0.91");
  serve("3");
  EXPECT_EQ(chosen("message"), "accuracy 0.91; no other Model matches");
  const std::string uid = pod_uid();

  add_model("b", '4', "0.91");  // not better
  ASSERT_TRUE(eventually([&] {
    return chosen("message") == "accuracy 0.91 is the highest of 2 Models that match";
  })) << chosen("message");
  EXPECT_EQ(chosen("name"), "a");
  set_accuracy("b", "0.93");
  ASSERT_TRUE(eventually([&] { return work()["target"].as_string() == "4"; }));
  EXPECT_EQ(held(), "3 4");
  EXPECT_EQ(chosen("name"), "b");
  EXPECT_EQ(chosen("message"), "accuracy 0.93 is the highest of 2 Models that match");
  report("4", "34");
  ASSERT_TRUE(eventually([&] { return serves("4"); }));
  EXPECT_EQ(pod_uid(), uid) << "the pod was recreated";
  set_accuracy("b", "0.5");  // below the limit
  EXPECT_TRUE(eventually([&] { return work()["target"].as_string() == "3"; }));
  EXPECT_EQ(chosen("name"), "a");
}

// The operator reads only files that an InferenceModel may serve.
TEST_F(ModelRef, ModelWithoutDigestIsPinned) {
  stop();
  file_digests_ = [](const std::string& url) {
    const char digit = url.find("a.onnx") != std::string::npos ? '3' : '4';
    return hosting::FileDigest{hosting::FileDigest::State::kRead, std::string(64, digit), 9, ""};
  };
  start();
  add_edge_node();
  for (const char* name : {"a", "b"})
    post(kEdgeaiModels, std::string("{apiVersion: edgeai.io/v1alpha1, kind: Model, metadata: "
                                    "{name: ") +
                            name + "}, spec: {format: onnx, modelUrl: 'http://f/" + name +
                            ".onnx'}}");
  add_inference_model("{name: a}");
  ASSERT_TRUE(eventually([&] { return chosen("version") == "333333333333"; }))
      << codec::write_json(status());
  EXPECT_TRUE(get(kEdgeaiModels + "/b").at("status/pinned").is_null());
  patch(kDigits, "{spec: {modelRef: {name: null, selector: {metric: accuracy, atLeast: 0.9}}}}");
  set_accuracy("b", "0.91");
  ASSERT_TRUE(eventually([&] { return chosen("version") == "444444444444"; }))
      << codec::write_json(status());
  EXPECT_EQ(get(kEdgeaiModels + "/b").at("status/pinned/sha256").as_string(), std::string(64, '4'));
}

TEST_F(ModelRef, ManifestBecomesModelRefWithoutAnotherPod) {
  add_edge_node();
  post(testing::kInferenceModels,
       "{apiVersion: ai.kubeedge.io/v1alpha1, kind: InferenceModel, metadata: {name: digits}, "
       "spec: {modelName: digits, deployToLayer: edge, nodeName: edge0, frameworkType: onnx, "
       "targetVersion: '3', manifest: [{version: '3', downloadURL: 'http://f/3.tar.gz', "
       "sha256sum: '" +
           std::string(64, '3') + "'}]}}");
  serve("3");
  const std::string uid = pod_uid();
  patch(kDigits, "{spec: {manifest: null, targetVersion: null, modelRef: {name: four}}}");
  ASSERT_TRUE(eventually([&] { return condition("Ready", "reason") == "ModelNotFound"; }));
  ASSERT_TRUE(becomes_idle());
  EXPECT_EQ(held(), "3") << "the pod needs its files";
  EXPECT_TRUE(exists(testing::kPods + "/digits"));
  add_model("four", '4');
  ASSERT_TRUE(eventually([&] { return work()["target"].as_string() == "4"; }));
  EXPECT_EQ(held(), "3 4");
  report("4", "34");
  ASSERT_TRUE(eventually([&] { return serves("4"); })) << codec::write_json(status());
  EXPECT_EQ(pod_uid(), uid) << "the pod was recreated";
}

}  // namespace model_ref_test
}  // namespace varda::controllers::inferencemodel
