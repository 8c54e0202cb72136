// Controllers beside a cluster's own: foreign objects cost little memory, and our objects work.
#include "controllers/cache_filter.h"

#include <gtest/gtest.h>
#include <thread>

#include "api/core/node.h"
#include "api/core/pod.h"
#include "api/kind.h"
#include "apiserver/testing/in_memory.h"
#include "base/testing/eventually.h"
#include "codec/yaml.h"
#include "controllers/controllers.h"
#include "kube/client.h"

namespace varda::controllers {
namespace cache_filter_test {

using codec::Json;

Json yaml(std::string_view text) {
  auto parsed = codec::parse_yaml(text);
  EXPECT_TRUE(parsed.ok()) << (parsed.ok() ? "" : parsed.error().message());
  return std::move(parsed).value();
}

class CacheFilterTest : public ::testing::Test {
 protected:
  void post(const std::string& collection, const Json& object) {
    const auto reply = api_.post(collection, object);
    ASSERT_EQ(reply.status, 201) << reply.text;
  }
  void run() {
    controllers_ = add_all(manager_, {});
    thread_ = std::jthread(
        [this](std::stop_token stop) { EXPECT_TRUE(manager_.run(Context(stop)).ok()); });
    ASSERT_TRUE(eventually("it is ready", [this] { return manager_.ready(); }));
  }
  runtime::StoredPtr cached(const meta::Resource& resource, const std::string& name) {
    return manager_.caches().find(resource)->get({resource.namespaced ? "default" : "", name});
  }

  apiserver::InMemoryApiServer api_{{.crds = api::crds()}};
  kube::Client client_{api_.transport(), {}};
  runtime::Manager manager_{client_, {.informers = filter_caches}};
  std::unique_ptr<Controllers> controllers_;
  std::jthread thread_;
};

TEST_F(CacheFilterTest, CacheKeepsOnlyMetadataOfForeignPods) {
  const std::string much(15'000, 'x');
  const std::string pod =
      "spec: {containers: [{name: c, image: i, env: [{name: E, value: " + much + "}]}]}}";
  post("/api/v1/namespaces/default/pods",
       yaml("{metadata: {name: foreign, labels: {app: web}, annotations: {much: " + much + "}}, " +
            pod));
  post("/api/v1/namespaces/default/pods",
       yaml("{metadata: {name: ours, labels: {edgeai.io/inference-model: m}}, " + pod));
  const std::string owner =
      "{apiVersion: edgeai.io/v1alpha1, kind: InferenceModel, name: m, uid: u}";
  post("/api/v1/namespaces/default/pods",
       yaml("{metadata: {name: unlabelled, ownerReferences: [" + owner + "]}, " + pod));
  post("/api/v1/namespaces/default/pods",
       yaml("{metadata: {name: of-a-job, labels: {edgeai.io/job: j}}, " + pod));
  const std::string job =
      "{apiVersion: sedna.io/v1alpha1, kind: JobOfAnotherRelease, name: j, uid: u}";
  post("/api/v1/namespaces/default/pods",
       yaml("{metadata: {name: unlabelled-of-a-job, ownerReferences: [" + job + "]}, " + pod));
  post("/api/v1/nodes", yaml("{metadata: {name: node0}}"));
  ASSERT_EQ(
      api_.merge_patch(
              "/api/v1/nodes/node0/status",
              yaml("{status: {conditions: [{type: Ready, status: 'True'}], images: [{names: [" +
                   much + "]}]}}"))
          .status,
      200);
  run();
  const runtime::StoredPtr foreign = cached(api::Pod::resource(), "foreign");
  ASSERT_TRUE(foreign);
  EXPECT_LT(foreign->text.size(), 500u) << foreign->text;
  EXPECT_EQ(foreign->object(), nullptr);
  EXPECT_EQ(foreign->metadata.labels.at("app"), "web");
  EXPECT_EQ(foreign->problem, "");
  for (const char* name : {"ours", "unlabelled", "of-a-job", "unlabelled-of-a-job"}) {
    const runtime::StoredPtr whole = cached(api::Pod::resource(), name);
    ASSERT_TRUE(whole && whole->object()) << name;
    EXPECT_EQ(whole->typed, nullptr) << name << ": the text is enough";
    EXPECT_GT(whole->text.size(), much.size()) << name;
  }
  const runtime::StoredPtr node = cached(api::Node::resource(), "node0");
  ASSERT_TRUE(node && node->typed);
  EXPECT_LT(node->text.size(), 1000u);
  EXPECT_NE(node->text.find("Ready"), std::string::npos);
  // A foreign object that gets our label counts as ours from then on.
  ASSERT_EQ(api_.merge_patch("/api/v1/namespaces/default/pods/foreign",
                             yaml("{metadata: {labels: {edgeai.io/inference-model: m}}}"))
                .status,
            200);
  ASSERT_TRUE(eventually("it is kept whole", [&] {
    const auto now = cached(api::Pod::resource(), "foreign");
    return now && now->object() && now->text.size() > much.size();
  }));
}

}  // namespace cache_filter_test
}  // namespace varda::controllers
