#include "controllers/workers/model_reference.h"

#include <functional>
#include <gtest/gtest.h>

namespace varda::controllers::workers {
namespace {

const std::string kDigest(64, 'a');

ModelResolution resolve(const std::function<void(api::SednaModel&)>& change, ModelUse use) {
  auto model = std::make_shared<api::SednaModel>();
  model->metadata.name = "small";
  model->metadata.ns = "default";
  model->spec.url = "https://models.example.com/small.tar.gz";
  model->spec.format = "onnx";
  model->spec.sha256 = kDigest;
  change(*model);
  api::ModelReference reference;
  reference.name = model->metadata.name;
  return resolve_model(reference, {model, nullptr}, use);
}

// The schema rejects some of these; older objects, or those of another server, are checked all the
// same.
TEST(ModelReference, InvalidUrlOrVersionIsUnsupported) {
  struct Case {
    const char* what;
    std::function<void(api::SednaModel&)> change;
    const char* reported;
  };
  const Case cases[] = {
      {"a url that nodes cannot be told",
       [](auto& model) { model.spec.url = "http://f/" + std::string(2040, 'u'); },
       "a url of 2049 characters"},
      {"a version that leads elsewhere", [](auto& model) { model.spec.version = "../../x y"; },
       "the version \"../../x y\""},
      {"a version of another directory", [](auto& model) { model.spec.version = ".."; },
       "the version \"..\""},
      {"a version that is too long", [](auto& model) { model.spec.version = std::string(64, '1'); },
       "the version \"1111"},
      {"the version that is a file on nodes", [](auto& model) { model.spec.version = "target"; },
       "the version \"target\""},
  };
  for (const Case& test : cases) {
    for (const ModelUse use : {ModelUse::kUsersWorker, ModelUse::kServer}) {
      SCOPED_TRACE(test.what);
      const ModelResolution found = resolve(test.change, use);
      ASSERT_TRUE(found.problem);
      EXPECT_FALSE(found.model);
      EXPECT_EQ(found.problem->reason, "ModelUnsupported");
      EXPECT_EQ(found.problem->message.find(std::string("Model small has ") + test.reported), 0u)
          << found.problem->message;
    }
  }
}

TEST(ModelReference, PathWithParentDirectoryIsUnsupported) {
  for (const char* path : {"/..", "/data/../etc", "file:///data/.."}) {
    const auto change = [path](api::SednaModel& model) {
      model.spec.url = path;
      model.spec.sha256 = "";
    };
    const ModelResolution found = resolve(change, ModelUse::kUsersWorker);
    ASSERT_TRUE(found.problem) << path;
    EXPECT_EQ(found.problem->reason, "ModelUnsupported");
  }
  const auto plain = [](api::SednaModel& model) {
    model.spec.url = "/data/..a/b";
    model.spec.sha256 = "";
  };
  EXPECT_EQ(resolve(plain, ModelUse::kUsersWorker).model->path, "/data/..a/b");
}

TEST(ModelReference, LongestValidUrlAndVersionAreAccepted) {
  const auto change = [](api::SednaModel& model) {
    model.metadata.name = std::string(253, 'm');
    model.spec.url = "http://f/" + std::string(2039, 'u');
    model.spec.version = "v_1.2-" + std::string(57, '3');
  };
  EXPECT_TRUE(resolve(change, ModelUse::kUsersWorker).model);
  EXPECT_TRUE(resolve(change, ModelUse::kServer).model);
}

TEST(ModelReference, UnnamedVersionIsNamedByArchiveDigest) {
  EXPECT_EQ(
      resolve([](auto& model) { model.spec.sha256 = std::string(64, 'b'); }, ModelUse::kServer)
          .model->version,
      "bbbbbbbbbbbb");
  EXPECT_EQ(
      resolve([](auto& model) { model.spec.sha256 = ""; }, ModelUse::kUsersWorker).model->version,
      "1");
}

TEST(ModelReference, InferenceModelWithInvalidVersionIsUnsupported) {
  auto model = std::make_shared<api::InferenceModel>();
  model->metadata.name = "digits";
  model->spec.framework_type = "onnx";
  model->spec.target_version = "1";
  for (const char* name : {"1", "../2"}) {
    api::ManifestEntry& entry = model->spec.manifest.emplace_back();
    entry.version = name;
    entry.download_url = "http://f/1.tgz";
    entry.sha256sum = kDigest;
  }
  api::ModelReference reference;
  reference.name = "digits";
  const ModelResolution found = resolve_model(reference, {nullptr, model}, ModelUse::kServer);
  ASSERT_TRUE(found.problem);
  EXPECT_EQ(found.problem->reason, "ModelUnsupported");
}

}  // namespace
}  // namespace varda::controllers::workers
