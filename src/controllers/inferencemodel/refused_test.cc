// Objects that a policy of the cluster refused are written again later: no watch reports a changed
// policy.

#include <deque>
#include <gtest/gtest.h>

#include "apiserver/testing/in_memory.h"
#include "controllers/inferencemodel/reconciler.h"
#include "controllers/testing/watch_for.h"
#include "kube/client.h"

namespace varda::controllers::inferencemodel {
namespace {

using codec::Json;

/// Answers converge() by a script, and keeps the last status.
class ScriptedWriter final : public runtime::Writer {
 public:
  std::deque<Status> answers;
  Json status;

  Status apply(const Context&, Json) override { return {}; }
  Status edit(const Context&, const runtime::ObjectRef&, runtime::Part,
              const std::function<void(Json&)>& change) override {
    Json live = Json::object();
    change(live);
    status = std::as_const(live)["status"];
    return {};
  }
  Result<Json> create(const Context&, Json object, const runtime::ObjectRef*) override {
    return object;
  }
  Status remove(const Context&, const runtime::ObjectRef&) override { return {}; }
  Status add_finalizer(const Context&, const runtime::ObjectRef&, std::string_view) override {
    return {};
  }
  Status remove_finalizer(const Context&, const runtime::ObjectRef&, std::string_view) override {
    return {};
  }
  void event(const runtime::ObjectRef&, runtime::EventType, std::string_view,
             std::string_view) override {}

 protected:
  Status converge(const Context&, const runtime::ObjectRef&, std::vector<Json>) override {
    if (answers.empty()) return {};
    Status next = std::move(answers.front());
    answers.pop_front();
    return next;
  }
};

TEST(RefusedObjects, RefusedWriteIsRetriedWithinFiveMinutes) {
  apiserver::InMemoryApiServer api;
  const kube::Client client(api.transport(), {});
  runtime::Manager manager(client, runtime::Manager::Options{});
  InferenceModelReconciler reconciler(manager.caches(), {});
  watch_for<api::InferenceModel>(manager, reconciler);
  api::InferenceModel model;
  model.metadata.name = "digits";
  model.metadata.ns = "default";
  model.metadata.uid = "model-uid";
  model.spec.model_name = "digits";
  model.spec.deploy_to_layer = "cloud";
  model.spec.image = "registry.example/server:1";

  ScriptedWriter writer;
  // 422 and 400 of an admission policy are terminal for the client, which knows no policies.
  writer.answers.push_back(Error(Code::kInvalid, "policy: image is not signed").as_terminal());
  const auto reason = [&] {
    return std::as_const(writer.status)["conditions"].as_array().front()["reason"].as_string();
  };
  auto action = reconciler.reconcile(Context(), model, writer);
  ASSERT_TRUE(action.ok()) << action.error().message();
  ASSERT_TRUE(action->delay().has_value());
  EXPECT_GE(*action->delay(), std::chrono::minutes(1));
  EXPECT_LE(*action->delay(), std::chrono::minutes(5));
  EXPECT_EQ(reason(), "Refused");

  action = reconciler.reconcile(Context(), model, writer);  // the policy is gone
  ASSERT_TRUE(action.ok()) << action.error().message();
  EXPECT_FALSE(action->delay().has_value());
  EXPECT_NE(reason(), "Refused");

  // Other errors back off as usual.
  writer.answers.push_back(Error(Code::kUnavailable, "no connection"));
  EXPECT_FALSE(reconciler.reconcile(Context(), model, writer).ok());
}

}  // namespace
}  // namespace varda::controllers::inferencemodel
