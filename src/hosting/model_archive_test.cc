#include "hosting/model_archive.h"

#include <gtest/gtest.h>
#include <memory>

#include "hosting/chosen_model.h"

namespace varda::hosting {
namespace model_archive_test {

AnyModel model_with(const std::string& url, const std::string& sha256,
                    const std::string& version = "") {
  auto model = std::make_shared<api::SednaModel>();
  model->metadata.name = "small";
  model->metadata.ns = "shop";
  model->spec.url = url;
  model->spec.sha256 = sha256;
  model->spec.version = version;
  model->spec.credential_name = "files";
  return any_model(std::shared_ptr<const api::SednaModel>(model));
}

const std::string kDigest(64, 'a');

TEST(ModelArchive, ArchiveHasVersionUrlDigestAndCredentials) {
  const ModelArchive found = archive_of(model_with("https://f/small.tgz", kDigest, "4"), nullptr);
  ASSERT_TRUE(found.archive) << found.problem->message;
  EXPECT_EQ(found.archive->version, "4");
  EXPECT_EQ(found.archive->url, "https://f/small.tgz");
  EXPECT_EQ(found.archive->sha256, kDigest);
  EXPECT_EQ(found.archive->credentials, "shop/files");
  EXPECT_EQ(archive_of(model_with("https://f/small.tgz", kDigest), nullptr).archive->version,
            "aaaaaaaaaaaa");
}

TEST(ModelArchive, PathWithDigestBecomesFileUrl) {
  EXPECT_EQ(archive_of(model_with("/srv/a b/100%.tgz", kDigest), nullptr).archive->url,
            "file:///srv/a%20b/100%25.tgz");
  EXPECT_EQ(archive_of(model_with("file:///srv/a.tgz", kDigest), nullptr).archive->url,
            "file:///srv/a.tgz");
}

TEST(ModelArchive, UnservableModelNamesTheReason) {
  struct Case {
    AnyModel model;
    const char* reason;
    const char* message;
  };
  const Case cases[] = {
      {model_with("https://f/a.tgz", ""), "DigestMissing", "Model small has no sha256"},
      {model_with("/srv/a.tgz", ""), "DigestMissing", "Model small has a path as url"},
      {model_with("ftp://f/a.tgz", kDigest), "ModelUnsupported",
       "Model small has the url \"ftp://f/a.tgz\": must be an http, https, s3 or file URL"},
      {model_with("https://f/a b", kDigest), "ModelUnsupported", "Model small has the url"},
      {model_with("file://host/a", kDigest), "ModelUnsupported", "Model small has the url"},
      {model_with("https://f/a.tgz", kDigest, "../x"), "ModelUnsupported",
       "Model small has the version \"../x\""},
      {model_with("https://f/a.tgz", kDigest, "target"), "ModelUnsupported",
       "Model small has the version \"target\""},
  };
  for (const Case& test : cases) {
    SCOPED_TRACE(test.message);
    const ModelArchive found = archive_of(test.model, nullptr);
    EXPECT_FALSE(found.archive);
    ASSERT_TRUE(found.problem);
    EXPECT_EQ(found.problem->reason, test.reason);
    EXPECT_TRUE(found.problem->message.starts_with(test.message)) << found.problem->message;
  }
}

TEST(ModelArchive, FormatsOfFrameworksAreKnown) {
  struct Case {
    std::string format, url, framework;
  };
  for (const Case& c : std::initializer_list<Case>{
           {"onnx", "https://f/a", "onnx"},
           {"ONNX", "https://f/a", "onnx"},
           {"pb", "https://f/a.onnx", "pb"},
           {"saved_model", "https://f/a", "tensorflow"},
           {"pt", "https://f/a", "pytorch"},
           {"tar.gz", "https://f/a.onnx", ""},
           {"", "https://f/a.tar.gz", ""},
           {"", "https://f.onnx/a", ""},
           {"", "/model/frozen.pb", "pb"},
           {"", "s3://bucket/a.ONNX?x=/b.pb", "onnx"},
       }) {
    api::ModelSpec spec;
    spec.format = c.format;
    spec.url = c.url;
    EXPECT_EQ(framework_of_file(spec), c.framework) << c.format << " " << c.url;
  }
}

TEST(ChosenModel, ChosenArchivesReplaceTheManifest) {
  api::InferenceModel model;
  model.spec.model_ref.emplace().name = "small";
  EXPECT_TRUE(awaits_choice(model));
  EXPECT_EQ(framework_of(model), "");
  api::ChosenModel& chosen = model.status.model_ref.emplace();
  chosen.version = "4";
  chosen.framework_type = "onnx";
  for (const char* version : {"3", "4"}) chosen.versions.emplace_back().version = version;
  EXPECT_FALSE(awaits_choice(model));
  EXPECT_EQ(manifest_of(model).size(), 2u);
  const api::InferenceModel resolved = with_manifest(model);
  EXPECT_FALSE(resolved.spec.model_ref);
  EXPECT_EQ(resolved.spec.target_version, "4");
  EXPECT_EQ(resolved.spec.framework_type, "onnx");
  EXPECT_EQ(resolved.spec.manifest, chosen.versions);
  model.spec.framework_type = "triton";
  EXPECT_EQ(framework_of(model), "triton");
  EXPECT_EQ(with_manifest(model).spec.framework_type, "triton");
}

// A status without a modelRef in the spec is a leftover of the former spec.
TEST(ChosenModel, ManifestOfTheSpecCountsWithoutModelRef) {
  api::InferenceModel model;
  model.spec.target_version = "1";
  model.spec.manifest.emplace_back().version = "1";
  model.status.model_ref.emplace().version = "4";
  EXPECT_EQ(manifest_of(model).front().version, "1");
  EXPECT_EQ(with_manifest(model).spec.target_version, "1");
}

TEST(ChosenModel, WorkListArchiveBecomesManifestEntry) {
  api::EdgeModelVersion archive;
  archive.version = "3";
  archive.url = "http://f/3.tgz";
  archive.sha256 = kDigest;
  archive.mirrors = {"http://g/3.tgz"};
  archive.credentials = "shop/files";
  const api::ManifestEntry entry = entry_of(archive);
  EXPECT_EQ(entry.version, "3");
  EXPECT_EQ(entry.download_url, "http://f/3.tgz");
  EXPECT_EQ(entry.sha256sum, kDigest);
  EXPECT_EQ(entry.mirrors, archive.mirrors);
  ASSERT_TRUE(entry.credentials);
  EXPECT_EQ(entry.credentials->secret_name, "files");
}

}  // namespace model_archive_test
}  // namespace varda::hosting
