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
  return resolve_model(
      reference, {{hosting::any_model(std::shared_ptr<const api::SednaModel>(model))}, nullptr},
      use);
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

TEST(ModelReference, NameInBothGroupsNeedsAGroup) {
  auto sedna = std::make_shared<api::SednaModel>();
  auto edgeai = std::make_shared<api::Model>();
  const auto fill = [](auto& model, const char* url) {
    model->metadata.name = "small";
    model->spec.url = url;
    model->spec.format = "onnx";
    model->spec.sha256 = kDigest;
  };
  fill(sedna, "http://f/sedna.tgz");
  fill(edgeai, "http://f/edgeai.tgz");
  const hosting::AnyModel a = hosting::any_model(std::shared_ptr<const api::Model>(edgeai)),
                          b = hosting::any_model(std::shared_ptr<const api::SednaModel>(sedna));
  api::ModelReference reference;
  reference.name = "small";
  EXPECT_EQ(resolve_model(reference, {{a}, nullptr}, ModelUse::kServer).model->url,
            "http://f/edgeai.tgz");
  EXPECT_EQ(resolve_model(reference, {{b}, nullptr}, ModelUse::kServer).model->url,
            "http://f/sedna.tgz");
  const auto both = [&] { return resolve_model(reference, {{a, b}, nullptr}, ModelUse::kServer); };
  EXPECT_EQ(both().problem->reason, "ModelAmbiguous");
  EXPECT_EQ(both().problem->message,
            "Model small exists in edgeai.io and in sedna.io: set the group of the reference");
  reference.group = "edgeai.io";
  EXPECT_EQ(both().model->url, "http://f/edgeai.tgz");
  reference.group = "sedna.io";
  EXPECT_EQ(both().model->url, "http://f/sedna.tgz");
  EXPECT_EQ(resolve_model(reference, {{a}, nullptr}, ModelUse::kServer).problem->message,
            "there is no Model (sedna.io) small");
}

TEST(ModelReference, InferenceModelWithoutChosenModelIsNotFound) {
  auto model = std::make_shared<api::InferenceModel>();
  model->metadata.name = "digits";
  model->spec.framework_type = "onnx";
  model->spec.model_ref.emplace().name = "best";
  api::ModelReference reference;
  reference.name = "digits";
  EXPECT_EQ(resolve_model(reference, {{}, model}, ModelUse::kServer).problem->reason,
            "ModelNotFound");
  api::ChosenModel& chosen = model->status.model_ref.emplace();
  chosen.version = "4";
  api::ManifestEntry& entry = chosen.versions.emplace_back();
  entry.version = "4";
  entry.download_url = "http://f/4.tgz";
  entry.sha256sum = kDigest;
  const ModelResolution found = resolve_model(reference, {{}, model}, ModelUse::kServer);
  ASSERT_TRUE(found.model) << found.problem->message;
  EXPECT_EQ(found.model->version, "4");
  EXPECT_EQ(found.model->url, "http://f/4.tgz");
}

// A server pinned the digest. A user's worker keeps the URL that it would have without the server.
TEST(ModelReference, PinnedDigestIsForServersOnly) {
  const auto change = [](api::SednaModel& model) {
    model.spec.sha256 = "";
    model.status.pinned = api::PinnedFile{model.spec.url, "", kDigest, 4711, ""};
  };
  for (const ModelUse use : {ModelUse::kServer, ModelUse::kAnyServer}) {
    const ModelResolution found = resolve(change, use);
    ASSERT_TRUE(found.model) << found.problem->message;
    EXPECT_EQ(found.model->version, kDigest.substr(0, 12));
    ASSERT_NE(found.model->archive(), nullptr);
    EXPECT_EQ(found.model->archive()->sha256, kDigest);
  }
  EXPECT_FALSE(resolve(change, ModelUse::kUsersWorker).model->fetched());
  const auto none = [](api::SednaModel& model) { model.spec.sha256 = ""; };
  EXPECT_EQ(resolve(none, ModelUse::kAnyServer).problem->reason, "DigestMissing");
}

TEST(ModelReference, OnlyOurServerLimitsTheFormat) {
  const auto change = [](api::SednaModel& model) { model.spec.format = "triton"; };
  EXPECT_EQ(resolve(change, ModelUse::kServer).problem->reason, "ModelUnsupported");
  EXPECT_TRUE(resolve(change, ModelUse::kAnyServer).model);
  const auto suffix = [](api::SednaModel& model) { model.spec.format = "caffemodel"; };
  EXPECT_EQ(resolve(suffix, ModelUse::kServer).model->framework, "caffe");
}

// The signature of a chosen Model is for the Model's name, and its InferenceModel may serve it
// under another name.
TEST(ModelReference, ModelChosenByModelRefIsNotCheckedUnderAnotherName) {
  auto model = std::make_shared<api::InferenceModel>();
  model->metadata.name = "line";
  model->spec.model_name = "digits";
  model->spec.framework_type = "onnx";
  api::ManifestEntry entry;
  entry.version = "4";
  entry.download_url = "http://f/4.tgz";
  entry.sha256sum = kDigest;
  entry.signature = std::string(86, 'A') + "==";
  model->spec.model_ref.emplace().name = "best";
  api::ChosenModel& chosen = model->status.model_ref.emplace();
  chosen.name = "best";
  chosen.version = "4";
  chosen.versions = {entry};
  api::ModelReference reference;
  reference.name = "line";
  const auto keys =
      hosting::ModelKeys::parse("11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=").value();
  const ModelResolution found = resolve_model(reference, {{}, model, keys}, ModelUse::kServer);
  ASSERT_TRUE(found.model) << found.problem->message;
  EXPECT_EQ(found.model->archives.size(), 1u);
  model->spec.model_ref.reset();
  model->spec.manifest = {entry};
  model->spec.target_version = "4";
  EXPECT_EQ(resolve_model(reference, {{}, model, keys}, ModelUse::kServer).problem->reason,
            "SignatureRefused");
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
  const ModelResolution found = resolve_model(reference, {{}, model}, ModelUse::kServer);
  ASSERT_TRUE(found.problem);
  EXPECT_EQ(found.problem->reason, "ModelUnsupported");
}

}  // namespace
}  // namespace varda::controllers::workers
