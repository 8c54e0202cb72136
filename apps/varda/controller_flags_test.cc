#include "controller_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "os/testing/test_directory.h"
#include "servers_flag.h"
#include "testing/parse.h"

namespace varda::app {
namespace {

using os::testing::TestDirectory;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string parse_controllers(ControllerFlags& flags, const std::vector<std::string>& arguments) {
  return testing::parse([&](CLI::App& parser) { add_controller_flags(parser, flags); }, arguments);
}

TEST(ControllerFlags, DefaultFlagsKeepTheBuiltInServerTable) {
  ControllerFlags flags;
  ASSERT_EQ(parse_controllers(flags, {}), "");
  const hosting::Options options = model_options(flags, "").value(), usual;
  EXPECT_EQ(options.servers.size(), usual.servers.size());
  EXPECT_EQ(options.servers.at("onnx").image, usual.servers.at("onnx").image);
  EXPECT_EQ(options.serve_image, usual.serve_image);
  EXPECT_EQ(options.train_image, usual.train_image);
  EXPECT_EQ(options.aggregate_image, usual.aggregate_image);
  EXPECT_EQ(options.fetch_image, usual.fetch_image);
  EXPECT_EQ(options.edge_network, usual.edge_network);
}

TEST(ControllerFlags, FlagsSetImagesAndTheEdgeNetwork) {
  ControllerFlags flags;
  ASSERT_EQ(
      parse_controllers(flags, {"--serve-image=registry/serve:1", "--train-image=registry/train:1",
                                "--aggregate-image=registry/aggregate:1",
                                "--fetch-image=registry/varda:1", "--edge-network=hostport"}),
      "");
  const hosting::Options options = model_options(flags, "").value();
  EXPECT_EQ(options.servers.at("onnx").image, "registry/serve:1");
  EXPECT_EQ(options.serve_image, "registry/serve:1");
  EXPECT_EQ(options.train_image, "registry/train:1");
  EXPECT_EQ(options.aggregate_image, "registry/aggregate:1");
  EXPECT_EQ(options.fetch_image, "registry/varda:1");
  EXPECT_EQ(options.edge_network, "hostport");
  EXPECT_THAT(parse_controllers(flags, {"--edge-network=bridge"}), HasSubstr("--edge-network"));
}

TEST(ControllerFlags, ServerTableFileOverridesTheImageFlag) {
  const TestDirectory root;
  ControllerFlags flags;
  flags.serve_image = "registry/serve:1";
  const auto file = root.write("servers.yaml", "servers:\n  onnx: {image: 'own/onnx:2'}\n");
  const hosting::Options options = model_options(flags, file).value();
  EXPECT_EQ(options.servers.at("onnx").image, "own/onnx:2");
  EXPECT_EQ(options.serve_image, "registry/serve:1");
}

TEST(ControllerFlags, ModelKeysComeFromTheFile) {
  const TestDirectory root;
  ControllerFlags flags;
  EXPECT_EQ(hosting::keys_of(model_options(flags, "").value()), nullptr);
  const auto file = root.write("keys", "11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\n");
  ASSERT_EQ(parse_controllers(flags, {"--model-keys=" + file.string()}), "");
  const hosting::Options options = model_options(flags, "").value();
  EXPECT_EQ(hosting::keys_of(options)->size(), 1u);
  root.write("keys", "");
  const auto wrong = model_options(flags, "");
  ASSERT_FALSE(wrong.ok());
  EXPECT_THAT(wrong.error().message(), AllOf(HasSubstr("--model-keys"), HasSubstr(file.string())));
}

TEST(ReadServers, FileOverridesEntriesOfTheBuiltInTable) {
  const TestDirectory root;
  root.write("..data/servers.yaml",
             "servers:\n  tensorflow: {image: 'own/tf:2', readyPath: /ready}\n");
  // A mounted ConfigMap has such links.
  std::filesystem::create_symlink("..data/servers.yaml", root / "servers.yaml");
  const hosting::ServerTable table = read_servers(root / "servers.yaml").value();
  EXPECT_EQ(table.size(), hosting::builtin_servers().size());
  EXPECT_EQ(table.at("tensorflow").image, "own/tf:2");
  EXPECT_EQ(table.at("tensorflow").ready_path, "/ready");
  EXPECT_EQ(table.at("onnx").image, hosting::builtin_servers().at("onnx").image);
}

TEST(ReadServers, EmptyTableChangesNothing) {
  const TestDirectory root;
  EXPECT_EQ(read_servers(root.write("servers.yaml", "servers: {}\n"))->size(),
            hosting::builtin_servers().size());
  EXPECT_EQ(read_servers(root.write("servers.yaml", "servers:\n"))->size(),
            hosting::builtin_servers().size());
}

TEST(ReadServers, ErrorNamesTheFileAndTheField) {
  const TestDirectory root;
  const std::pair<const char*, const char*> cases[] = {
      {"", "expected one YAML document"},
      {"[]", "expected one key, servers"},
      {"onnx: {image: a}", "expected one key, servers"},
      {"servers: {}\nmore: 1", "expected one key, servers"},
      {"servers: [", ""},
      {"servers: 5", "servers: must be an object"},
      {"servers: {letters: {image: a}}", "letters"},
      {"servers: {onnx: 5}", "onnx"},
      {"servers: {onnx: {image: 5}}", "image"},
      {"servers: {onnx: {image: a, colour: red}}", "colour"},
  };
  for (const auto& [text, message] : cases) {
    const auto table = read_servers(root.write("servers.yaml", text));
    ASSERT_FALSE(table.ok()) << text;
    EXPECT_EQ(table.error().code(), Code::kInvalid) << text;
    EXPECT_THAT(table.error().message(),
                AllOf(HasSubstr((root / "servers.yaml").string()), HasSubstr(message)))
        << text;
  }
}

TEST(ReadServers, ErrorNamesTheUnreadableFile) {
  const TestDirectory root;
  root.write("large", "servers: {} #" + std::string(1u << 20, 'x'));
  for (const char* name : {"missing", ".", "large"}) {
    const auto table = read_servers(root / name);
    ASSERT_FALSE(table.ok()) << name;
    EXPECT_THAT(
        table.error().message(),
        HasSubstr(name == std::string(".") ? root.path().string() : (root / name).string()));
  }
}

}  // namespace
}  // namespace varda::app
