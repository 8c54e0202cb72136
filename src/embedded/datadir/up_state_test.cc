#include "datadir/up_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "os/testing/test_directory.h"

namespace varda::datadir {
namespace {

using os::testing::TestDirectory;
using ::testing::HasSubstr;

TEST(ParseNode, NodeNameWithOrWithoutLayerIsAccepted) {
  const std::pair<const char*, NodeSpec> cases[] = {
      {"edge0", {"edge0", "edge"}},       {"cloud", {"cloud", "cloud"}},
      {"cloud-2", {"cloud-2", "cloud"}},  {"a=cloud", {"a", "cloud"}},
      {"cloud=edge", {"cloud", "edge"}},  {"camera=device", {"camera", "device"}},
      {"my-cloud", {"my-cloud", "edge"}}, {"0", {"0", "edge"}},
  };
  for (const auto& [text, node] : cases) {
    const auto parsed = parse_node(text);
    ASSERT_TRUE(parsed.ok()) << text << ": " << parsed.error();
    EXPECT_EQ(*parsed, node) << text;
  }
}

// The name is used for a directory below nodes/ and for objects.
TEST(ParseNode, InvalidNameOrLayerIsRefused) {
  const std::string long_name(64, 'a');
  for (const std::string& text :
       {std::string(), std::string("="), std::string("=edge"), std::string("."), std::string(".."),
        std::string("../x"), std::string("a/b"), std::string("/"), std::string("Edge0"),
        std::string("edge_0"), std::string("-edge"), std::string("edge-"), std::string("a.b"),
        std::string(" a"), std::string("a "), std::string("a\n"), std::string("a\0b", 3),
        std::string("ä"), long_name}) {
    const auto parsed = parse_node(text);
    ASSERT_FALSE(parsed.ok()) << '"' << text << '"';
    EXPECT_EQ(parsed.error().code(), Code::kInvalid) << text;
    EXPECT_THAT(parsed.error().message(), HasSubstr("--node \"" + text + "\": "));
  }
  EXPECT_TRUE(parse_node(long_name.substr(1)).ok());
  for (const char* layer : {"", "Cloud", "edge=edge", "fog", " edge", "edge "}) {
    const auto parsed = parse_node(std::string("a=") + layer);
    ASSERT_FALSE(parsed.ok()) << layer;
    EXPECT_EQ(parsed.error().message(), std::string("--node \"a=") + layer +
                                            "\": the layer must be cloud, edge or device, not \"" +
                                            layer + "\"");
  }
}

TEST(UpState, StateSurvivesRoundTrip) {
  const TestDirectory root;
  const UpState written{.process = {4711, 123'456'789},
                        .address = "127.0.0.1:41873",
                        .gateway = "0.0.0.0:10443",
                        .registry = "127.0.0.1:8092",
                        .nodes = {{"cloud", "cloud"}, {"edge0", "edge"}},
                        .images = {{"app:1", "/bin/app --flag \"quoted\"\n"}, {"b", ""}},
                        .driver = "containerd",
                        .containerd_socket = "/run/containerd/containerd.sock",
                        .pod_network = "cni",
                        .dataset_roots = {"/data", "edge0=/more data"},
                        .addresses = {"192.0.2.7"}};
  ASSERT_TRUE(write_state(root.path(), written).ok());
  EXPECT_EQ(root.mode("up.json"), 0600u);
  EXPECT_EQ(root.all(), std::vector<std::string>{"up.json"});
  const auto read = read_state(root.path());
  ASSERT_TRUE(read.ok() && *read) << root.read("up.json");
  const UpState& state = **read;
  EXPECT_EQ(state.process, written.process);
  EXPECT_EQ(state.address, written.address);
  EXPECT_EQ(state.gateway, written.gateway);
  EXPECT_EQ(state.registry, written.registry);
  EXPECT_EQ(state.nodes, written.nodes);
  EXPECT_EQ(state.images, written.images);
  EXPECT_EQ(state.driver, written.driver);
  EXPECT_EQ(state.containerd_socket, written.containerd_socket);
  EXPECT_EQ(state.pod_network, written.pod_network);
  EXPECT_EQ(state.dataset_roots, written.dataset_roots);
  EXPECT_EQ(state.addresses, written.addresses);
}

TEST(UpState, FirstStartHasNoState) {
  const TestDirectory root;
  EXPECT_EQ(read_state(root.path()).value(), std::nullopt);
  EXPECT_EQ(read_state(root / "missing").value(), std::nullopt);
}

// Earlier programs wrote fewer keys, and later programs may write more.
TEST(UpState, KeysMayBeMissingOrUnknown) {
  const TestDirectory root;
  root.write(
      "up.json",
      R"({"pid":1,"nodes":[{"name":"a","layer":"edge","color":"red"}],"more":[1,2],"driver":null})");
  const UpState state = read_state(root.path()).value().value();
  EXPECT_EQ(state.process, (os::ProcessId{1, 0}));
  EXPECT_EQ(state.nodes, (std::vector<NodeSpec>{{"a", "edge"}}));
  EXPECT_EQ(state.driver, "");
}

// `varda up` ends nodes that the state lacks: without a state, it would end all but the default
// nodes.
TEST(UpState, DamagedFileIsAnError) {
  const TestDirectory root;
  for (const char* text : {"", "{", "{\"nodes\":[", "null", "[]", "\"up\"", "\xff\xfe"}) {
    root.write("up.json", text);
    const auto read = read_state(root.path());
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_EQ(read.error().code(), Code::kCorrupt);
    EXPECT_THAT(read.error().message(), HasSubstr((root / "up.json").string() + " is damaged"));
  }
  std::filesystem::remove(root / "up.json");
  std::filesystem::create_directory(root / "up.json");
  EXPECT_FALSE(read_state(root.path()).ok());
}

/// Switches from root to another user for its lifetime, since root may read every file.
class AsAUser {
 public:
  AsAUser() { CHECK(::geteuid() != 0 || (::seteuid(65534) == 0)); }
  ~AsAUser() { CHECK(::seteuid(::getuid()) == 0); }
};

// One start as root leaves such a file. `varda up` must not start with the default nodes and end
// all others.
TEST(UpState, FileOfAnotherUserIsAnError) {
  const TestDirectory root;
  root.write("up.json", R"({"nodes":[{"name":"a","layer":"edge"}]})");
  for (const bool directory : {false, true}) {
    std::filesystem::permissions(root / "up.json", std::filesystem::perms(directory ? 0644 : 0000));
    std::filesystem::permissions(root.path(), std::filesystem::perms(directory ? 0000 : 0755));
    Result<std::optional<UpState>> read = std::optional<UpState>();
    {
      const AsAUser user;
      read = read_state(root.path());
    }
    ASSERT_FALSE(read.ok()) << directory;
    EXPECT_EQ(read.error().code(), Code::kForbidden);
    EXPECT_THAT(read.error().message(),
                HasSubstr("cannot read " + (root / "up.json").string() + ": Permission denied, "));
    EXPECT_THAT(read.error().message(),
                HasSubstr(directory ? root.path().string() + " belongs to " : "it belongs to "));
  }
  std::filesystem::permissions(root.path(), std::filesystem::perms(0755));
}

TEST(UpState, WritingIntoAMissingDirectoryFails) {
  const TestDirectory root;
  EXPECT_EQ(write_state(root / "missing", {}).error().code(), Code::kNotFound);
}

TEST(UpState, EachNodeHasADirectory) {
  EXPECT_EQ(node_directory("/data", "edge0"), "/data/nodes/edge0");
}

}  // namespace
}  // namespace varda::datadir
