#include "apiserver/internal/wire_form.h"

#include <gtest/gtest.h>

#include "apiserver/internal/objects.h"
#include "apiserver/kinds/core.h"
#include "apiserver/kinds/crd.h"

namespace varda::apiserver {
namespace {

Json json(std::string_view text) { return codec::parse_json(text).value(); }

store::Entry entry(std::string bytes, store::Revision modified = 7) {
  return {.key = "/registry/some/where",
          .value = std::make_shared<const store::Value>(std::move(bytes)),
          .created = 1,
          .modified = modified};
}

std::string wire(const Kind& kind, const store::Entry& stored, Place place = Place::kAlone) {
  std::string out = "[";
  auto appended = append_wire_form(kind, stored, place, out);
  EXPECT_TRUE(appended.ok());
  return out.substr(1);
}

KindPtr built_in(std::string_view name) {
  for (const KindPtr& kind : core_kinds()) {
    if (kind->resource().kind == name) return kind;
  }
  return nullptr;
}

KindPtr custom(std::string_view properties) {
  Json crd = json(R"({"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
    "metadata":{"name":"lamps.example.com"},
    "spec":{"group":"example.com","scope":"Namespaced","names":{"plural":"lamps","singular":"lamp","kind":"Lamp","listKind":"LampList"},
            "versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}})");
  Json& schema = crd["spec"]["versions"].array_items()[0]["schema"]["openAPIV3Schema"];
  schema.set("properties", json(properties));
  auto kinds = kinds_from_crd(crd, {});
  EXPECT_TRUE(kinds.ok());
  return kinds.value().at(0);
}

constexpr std::string_view kLamp =
    R"({"spec":{"type":"object","properties":{"watts":{"type":"integer"}}}})";
constexpr std::string_view kDefaultedLamp =
    R"({"spec":{"type":"object","properties":{"watts":{"type":"integer"},"hue":{"type":"string","default":"red"}}}})";

// Repeated reads all give the object of decode().
void expect_as_decoded(const Kind& kind, const store::Entry& stored) {
  const Json decoded = Objects::decode(kind, stored).value();
  for (int reading = 0; reading < 3; ++reading)
    EXPECT_EQ(codec::write_json(json(wire(kind, stored))), codec::write_json(decoded));
}

const std::vector<std::string>& config_maps() {
  static const std::vector<std::string> all = {
      R"({"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","uid":"1"},"data":{"k":"v"}})",
      R"({"data":{"k":"v"},"apiVersion":"v1","metadata":{"name":"a"},"kind":"ConfigMap"})",
      R"({"kind":"ConfigMap","apiVersion":"v1","metadata":{"annotations":{"x":"\"}}{[\\","metadata":"{}"},"name":"a"}})",
      R"({"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","labels":{"ü":"\u0001"}},"data":{"metadata":"{}"}})",
      R"({"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","resourceVersion":"99"},"data":{}})",
      R"({"kind":"Other","apiVersion":"v0","metadata":{"name":"a"}})",
      R"({"metadata":{"name":"a"}})",
  };
  return all;
}

TEST(WireForm, WireFormEqualsDecodedObject) {
  const KindPtr kind = built_in("ConfigMap");
  for (const std::string& text : config_maps()) {
    expect_as_decoded(*kind, entry(text));                     // as written by another version
    expect_as_decoded(*kind, entry(stored_form(json(text))));  // as written by this version
  }
}

TEST(WireForm, StoredBytesAreSentWithResourceVersionAdded) {
  const KindPtr kind = built_in("ConfigMap");
  const store::Entry stored = entry(stored_form(json(config_maps()[0])), 41);
  (void)wire(*kind, stored);
  EXPECT_NE(stored.value->note(), 0u);
  EXPECT_EQ(
      wire(*kind, stored),
      R"({"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","uid":"1","resourceVersion":"41"},"data":{"k":"v"}})");
}

TEST(WireForm, StoredFormOmitsResourceVersionAndStartsWithKind) {
  EXPECT_EQ(
      stored_form(json(
          R"({"data":{},"metadata":{"resourceVersion":"9","name":"a"},"apiVersion":"v1","kind":"ConfigMap"})")),
      R"({"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"},"data":{}})");
}

TEST(WireForm, ItemsOfBuiltInKindsDoNotRepeatKindAndVersion) {
  const KindPtr kind = built_in("ConfigMap");
  for (const std::string& text : config_maps()) {
    const store::Entry stored = entry(stored_form(json(text)));
    Json expected = Objects::decode(*kind, stored).value();
    expected.erase("kind");
    expected.erase("apiVersion");
    for (int reading = 0; reading < 3; ++reading)
      EXPECT_EQ(wire(*kind, stored, Place::kInList), codec::write_json(expected));
  }
}

TEST(WireForm, ItemsOfCustomKindsAreCompleteObjects) {
  const KindPtr kind = custom(kLamp);
  const store::Entry stored = entry(
      R"({"kind":"Lamp","apiVersion":"example.com/v1","metadata":{"name":"a"},"spec":{"watts":3}})");
  for (int reading = 0; reading < 3; ++reading) {
    EXPECT_EQ(wire(*kind, stored, Place::kInList), wire(*kind, stored, Place::kAlone));
  }
}

TEST(WireForm, CachedFormIsNotReusedForAnotherSchema) {
  const KindPtr before = custom(kLamp), after = custom(kDefaultedLamp);
  const store::Entry stored = entry(
      R"({"kind":"Lamp","apiVersion":"example.com/v1","metadata":{"name":"a"},"spec":{"watts":3}})");
  for (int turn = 0; turn < 2; ++turn) {
    expect_as_decoded(*before, stored);
    expect_as_decoded(*after, stored);
    EXPECT_EQ(json(wire(*after, stored)).at("spec/hue").as_string(), "red");
  }
}

TEST(WireForm, UnreadableObjectIsAFailure) {
  std::string out;
  EXPECT_FALSE(append_wire_form(*built_in("ConfigMap"), entry("{"), Place::kAlone, out).ok());
  EXPECT_EQ(out, "");
}

}  // namespace
}  // namespace varda::apiserver
