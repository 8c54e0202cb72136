#include "cli/models.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>

#include "apiserver/testing/in_memory.h"
#include "cli/model_query.h"
#include "codec/yaml.h"
#include "os/testing/memory_file_system.h"

namespace varda::cli {
namespace models_test {

Json read(const std::string& path) {
  std::ifstream in(path);
  auto parsed = codec::parse_yaml(std::string((std::istreambuf_iterator<char>(in)), {}));
  EXPECT_TRUE(parsed.ok()) << path << (parsed.ok() ? "" : parsed.error().message());
  return parsed.ok() ? std::move(parsed).value() : Json();
}

TEST(ModelQuery, EveryCaseSelectsAndSortsAsExpected) {
  const std::string folder = std::string(VARDA_TESTDATA) + "/models/";
  const Json models = read(folder + "models.yaml"), cases = read(folder + "cases.yaml");
  ASSERT_GT(cases.size(), 50u);
  for (const Json& test : cases.as_array()) {
    std::vector<std::string> where;
    for (const Json& one : test["where"].as_array()) where.push_back(one.as_string());
    const auto query = ModelQuery::parse(where, test["sort"].as_string());
    const std::string shown = codec::write_json(test);
    if (test.contains("error")) {
      ASSERT_FALSE(query.ok()) << shown;
      EXPECT_EQ(query.error().message(), test["error"].as_string());
      EXPECT_EQ(query.error().code(), Code::kInvalid);
      continue;
    }
    ASSERT_TRUE(query.ok()) << shown << query.error();
    std::string names;
    for (const Json& model : query->select(models.as_array())) {
      names += (names.empty() ? "" : " ") + model.at("metadata/name").as_string();
    }
    EXPECT_EQ(names, test["names"].as_string()) << shown;
  }
}

TEST(ModelQuery, ShorthandsSelectByTaskAndMetric) {
  const Json models = read(std::string(VARDA_TESTDATA) + "/models/models.yaml");
  const auto names = [&](const ModelShorthands& shorthands, std::vector<std::string> where = {}) {
    const auto query = ModelQuery::parse(where, "", shorthands);
    if (!query.ok()) return query.error().message();
    std::string out;
    for (const Json& model : query->select(models.as_array()))
      out += model.at("metadata/name").as_string() + " ";
    return out;
  };
  EXPECT_EQ(names({.task = "classification"}), "digits-a digits-b sedna ");
  EXPECT_EQ(names({.task = "classification", .metric = "accuracy", .min = "0.9", .max = "0.93"}),
            "digits-a digits-b ");
  EXPECT_EQ(names({.metric = "accuracy", .min = "0.92"}), "digits-a sedna ");
  EXPECT_EQ(names({.metric = "accuracy", .max = "1e-1"}), "helmets ");
  EXPECT_EQ(names({.metric = "accuracy", .min = "0.9"}, {"group=sedna.io"}), "sedna ");
  EXPECT_EQ(names({.metric = "task", .min = "7"}), "digits-a ") << "a metric, not the field";
  EXPECT_EQ(names({.metric = "recall>=1", .min = "0"}), "");
  EXPECT_EQ(names({.min = "0.9"}), "--min and --max need --metric, such as --metric accuracy");
  EXPECT_EQ(names({.max = "0.9"}), "--min and --max need --metric, such as --metric accuracy");
  EXPECT_EQ(names({.metric = "accuracy"}), "--metric accuracy needs --min or --max");
  EXPECT_EQ(names({.metric = "accuracy", .min = "high"}), "--min \"high\" is not a number");
}

class ListModels : public ::testing::Test {
 protected:
  void install(const std::vector<std::string>& groups) {
    for (const std::string& group : groups)
      api_.install_crds(codec::write_yaml(
          read(std::string(VARDA_TESTDATA) + "/../../../deploy/crds/" + group + "_models.yaml")));
  }
  void add_models() {
    ASSERT_TRUE(
        client_
            .create(ctx_, {"", "v1", "Namespace", "namespaces", false},
                    *codec::parse_json(
                        R"({"apiVersion":"v1","kind":"Namespace","metadata":{"name":"factory"}})"))
            .ok());
    for (const Json& model : read(std::string(VARDA_TESTDATA) + "/models/models.yaml").as_array()) {
      const std::string& version = model["apiVersion"].as_string();
      const meta::Resource resource{version.substr(0, version.find('/')), "v1alpha1", "Model",
                                    "models", true};
      Json object = model;
      const Json status = object["status"];
      object.erase("status");
      auto created = client_.create(ctx_, resource, object);
      ASSERT_TRUE(created.ok()) << created.error();
      created->set("status", status.is_null() ? Json::object() : status);
      ASSERT_TRUE(client_.update_status(ctx_, resource, *created).ok());
    }
  }
  Status list(const ListModelsOptions& options) {
    out_.clear();
    return list_models(ctx_, session_, options);
  }

  apiserver::InMemoryApiServer api_;
  kube::Client client_{api_.transport(), {}};
  os::testing::MemoryFileSystem files_;
  std::string out_, error_;
  Session session_{client_, files_, [this](std::string_view text) { out_ += text; },
                   [this](std::string_view text) { error_ += text; },
                   []() -> Result<std::string> { return std::string(); }};
  Context ctx_ = Context().with_timeout(std::chrono::seconds(60));
};

TEST_F(ListModels, ListShowsModelsOfBothGroups) {
  install({"edgeai.io", "sedna.io"});
  add_models();
  ASSERT_TRUE(
      list({.where = {"accuracy>=0.9", "accuracy!=0.93"}, .sort_by = "accuracy:desc"}).ok());
  EXPECT_EQ(
      out_,
      "NAME       GROUP       TASK             FORMAT   METRICS                     UPDATED\n"
      "sedna      sedna.io    classification   pb       accuracy=10,loss=nan        <none>\n"
      "digits-b   edgeai.io   classification   onnx     accuracy=0.9,note=by hand   <none>\n");
  session_.all_namespaces = true;
  ASSERT_TRUE(
      list({.where = {"label=helmet"}, .output = *Output::parse("wide"), .headers = false}).ok());
  EXPECT_EQ(out_,
            "factory   helmets   edgeai.io   detection   pb   mAP@0.5=0.71,accuracy=1e-1   <none>  "
            " <none>   <none>   <none>   "
            "s3://m/helmets\n");
  ASSERT_TRUE(list({.where = {"format=pb"}, .output = *Output::parse("name")}).ok());
  EXPECT_EQ(out_, "model.edgeai.io/new\nmodel.edgeai.io/helmets\nmodel.sedna.io/sedna\n");
  ASSERT_TRUE(list({.where = {"name=new"}, .output = *Output::parse("json")}).ok());
  EXPECT_EQ(codec::parse_json(out_)->at("items/0/metadata/name").as_string(), "new");
  EXPECT_EQ(error_, "");
}

TEST_F(ListModels, EmptyListSucceedsWithAMessage) {
  install({"edgeai.io"});
  ASSERT_TRUE(list({}).ok()) << "a group may be missing";
  EXPECT_EQ(out_, "");
  EXPECT_EQ(error_, "No resources found in namespace default\n");
  error_.clear();
  install({"sedna.io"});
  add_models();
  ASSERT_TRUE(list({.where = {"accuracy>100"}}).ok());
  EXPECT_EQ(error_, "No Model in namespace default matches\n");
}

TEST_F(ListModels, MissingCrdErrorNamesWhatToInstall) {
  const Status status = list({});
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code(), Code::kNotFound);
  EXPECT_NE(status.error().message().find("deploy/crds"), std::string::npos);
}

TEST_F(ListModels, InvalidQueryIsRefusedBeforeAnyRequest) {
  EXPECT_EQ(list({.where = {"accuracy"}}).error().code(), Code::kInvalid);
}

// Untrusted text must not move the cursor.
TEST_F(ListModels, ControlCharactersAreNotPrinted) {
  install({"edgeai.io", "sedna.io"});
  const Json evil = *codec::parse_json(
      R"({"apiVersion":"edgeai.io/v1alpha1","kind":"Model","metadata":{"name":"m","namespace":"default"},
          "spec":{"modelUrl":"/m","format":"\u001b[2J","task":"a\nb"}})");
  ASSERT_TRUE(client_.create(ctx_, {"edgeai.io", "v1alpha1", "Model", "models", true}, evil).ok());
  ASSERT_TRUE(list({.headers = false}).ok());
  EXPECT_EQ(out_.find('\x1b'), std::string::npos);
  EXPECT_EQ(std::count(out_.begin(), out_.end(), '\n'), 1);
}

}  // namespace models_test
}  // namespace varda::cli
