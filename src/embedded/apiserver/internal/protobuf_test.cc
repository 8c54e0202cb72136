#include "apiserver/internal/protobuf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace varda::apiserver {
namespace {

std::string field(int number, std::string_view bytes) {
  std::string out(1, static_cast<char>(number << 3 | 2));
  std::size_t size = bytes.size();
  for (; size >= 0x80; size >>= 7) out += static_cast<char>(0x80 | (size & 0x7f));
  out += static_cast<char>(size);
  return out.append(bytes);
}

std::string number(int field_number, int value) {
  return {static_cast<char>(field_number << 3), static_cast<char>(value)};
}

std::string envelope(std::string_view api_version, std::string_view kind, std::string_view raw) {
  return std::string("k8s\0", 4) + field(1, field(1, api_version) + field(2, kind)) + field(2, raw);
}

TEST(ProtobufBody, ProtobufBodyBecomesJsonObject) {
  const std::string metadata = field(1, "a") + field(2, "") + number(7, 0) + field(8, "") +
                               field(11, field(1, "app") + field(2, "x"));
  const std::string raw = field(1, metadata) + field(2, field(1, "k") + field(2, "v")) +
                          field(3, field(1, "b") + field(2, "hi"));
  const auto object = parse_kubernetes_protobuf(envelope("v1", "ConfigMap", raw));
  ASSERT_TRUE(object.ok()) << object.error();
  EXPECT_EQ(
      *object,
      codec::parse_json(
          R"({"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","labels":{"app":"x"}},
    "data":{"k":"v"},"binaryData":{"b":"aGk="}})")
          .value());
}

TEST(ProtobufBody, LastEntryOfAMapKeyWins) {
  const auto entry = [](std::string_view key, std::string_view value) {
    return field(12, field(1, key) + field(2, value));
  };
  const auto object = parse_kubernetes_protobuf(
      envelope("v1", "ConfigMap",
               field(1, entry("a", "1") + entry("b", "2") +
                            field(11, field(1, "a") + field(2, "3")) + entry("a", "4"))));
  ASSERT_TRUE(object.ok()) << object.error();
  EXPECT_EQ(codec::write_json((*object)["metadata"]["annotations"]), R"({"a":"4","b":"2"})");
  EXPECT_EQ(codec::write_json((*object)["metadata"]["labels"]), R"({"a":"3"})");
}

// A linear search per entry takes minutes here and exceeds the test's time limit.
TEST(ProtobufBody, ALargeMapIsReadInLinearTime) {
  std::string metadata;
  for (int i = 0; i < 40'000; ++i)
    metadata += field(12, field(1, "key-" + std::to_string(i)) + field(2, ""));
  const auto object = parse_kubernetes_protobuf(envelope("v1", "ConfigMap", field(1, metadata)));
  ASSERT_TRUE(object.ok()) << object.error();
  EXPECT_EQ((*object)["metadata"]["annotations"].size(), 40'000u);
}

TEST(ProtobufBody, ZeroBehindAPointerIsAValue) {
  const std::string spec =
      number(1, 0) + number(5, 0);  // replicas is a pointer, minReadySeconds is not
  const auto object = parse_kubernetes_protobuf(envelope("apps/v1", "Deployment", field(2, spec)));
  ASSERT_TRUE(object.ok()) << object.error();
  EXPECT_EQ(codec::write_json((*object)["spec"]), R"({"replicas":0})");
}

// A volume's source and a probe's action are nested messages in protobuf, and flat members in JSON.
TEST(ProtobufBody, EmbeddedMessagesLieFlatInJson) {
  const std::string volume =
      field(1, "root") + field(2, field(1, field(1, "/srv") + field(2, "Directory")));
  const std::string probe =
      field(1, field(3, field(1, number(1, 0) + number(2, 80) + field(3, "")))) + number(2, 5);
  const std::string container = field(1, "c") +
                                field(8, field(1, field(1, "cpu") + field(2, field(1, "1")))) +
                                field(10, probe);
  const std::string security =
      number(4, 7) + field(4, std::string("\x08\x09", 2));  // unpacked, then packed
  const auto object = parse_kubernetes_protobuf(envelope(
      "v1", "Pod", field(2, field(1, volume) + field(2, container) + field(14, security))));
  ASSERT_TRUE(object.ok()) << object.error();
  EXPECT_EQ((*object)["spec"],
            codec::parse_json(
                R"({"volumes":[{"name":"root","hostPath":{"path":"/srv","type":"Directory"}}],
    "containers":[{"name":"c","resources":{"limits":{"cpu":"1"}},"livenessProbe":{"tcpSocket":{"port":80},"initialDelaySeconds":5}}],
    "securityContext":{"supplementalGroups":[7,8,9]}})")
                .value());
}

TEST(ProtobufBody, ValueOfAnotherTypeIsRefused) {
  const auto object =
      parse_kubernetes_protobuf(envelope("v1", "Pod", field(2, number(2, 1))));  // not a number
  ASSERT_FALSE(object.ok());
  EXPECT_EQ(object.error().code(), Code::kInvalid);
}

TEST(ProtobufBody, UnknownFieldsAreRefusedAndNeverDropped) {
  const auto object = parse_kubernetes_protobuf(envelope("v1", "ConfigMap", field(9, "x")));
  ASSERT_FALSE(object.ok());
  EXPECT_EQ(object.error().code(), Code::kUnsupported);
  EXPECT_THAT(object.error().message(), ::testing::HasSubstr("field 9 of ConfigMap"));
}

TEST(ProtobufBody, InvalidUtf8IsRefused) {
  const auto meta = [](std::string_view bytes) { return field(1, bytes); };
  const auto entry = [](std::string_view key, std::string_view value) {
    return field(11, field(1, key) + field(2, value));
  };
  for (const auto& [kind, raw] :
       {std::pair<std::string, std::string>("ConfigMap", meta(field(1, "a\xff"))),
        {"ConfigMap", meta(entry("k\xff", "v") + entry("k\xfe", "w"))},
        {"ConfigMap", meta(entry("k", "\xc3"))},
        {"Service", field(2, field(1, field(4, number(1, 1) + field(3, "\xff"))))},
        {"Kind\xff", ""}}) {
    const auto object = parse_kubernetes_protobuf(envelope("v1", kind, raw));
    ASSERT_FALSE(object.ok()) << kind;
    EXPECT_EQ(object.error().code(), Code::kInvalid) << kind;
    EXPECT_EQ(object.error().message(), "protobuf: a string is not UTF-8");
  }
  EXPECT_FALSE(parse_kubernetes_protobuf(envelope("v\xff", "ConfigMap", "")).ok());
  EXPECT_TRUE(
      parse_kubernetes_protobuf(envelope("v1", "ConfigMap", meta(entry("k", "\xc3\xa4")))).ok());
  // Byte fields may hold any bytes: JSON has them as base64.
  EXPECT_TRUE(parse_kubernetes_protobuf(
                  envelope("v1", "ConfigMap", field(3, field(1, "b") + field(2, "\xff"))))
                  .ok());
}

TEST(ProtobufBody, TruncatedBytesAreRefused) {
  const std::string whole = envelope("v1", "ConfigMap", field(1, field(1, "abc")));
  EXPECT_TRUE(parse_kubernetes_protobuf(whole).ok());
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const auto object = parse_kubernetes_protobuf(std::string_view(whole).substr(0, size));
    if (object.ok()) ADD_FAILURE() << "cut to " << size << " bytes";
  }
}

}  // namespace
}  // namespace varda::apiserver
