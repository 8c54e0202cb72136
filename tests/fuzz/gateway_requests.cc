// A node's requests to the gateway: the first line of the input is "METHOD TARGET", the rest is the
// body. Only the node's own requests pass, with its name in path and body and its own selector. Of
// a write, only the fields that nodes write pass.
#include <string>
#include <string_view>

#include "base/check.h"
#include "codec/json.h"
#include "gateway/layer.h"
#include "gateway/request.h"
#include "gateway/rules.h"
#include "input.h"
#include "meta/object.h"
#include "net/http.h"
#include "net/url.h"

namespace {

using varda::codec::Json;
using namespace varda::gateway;

const std::string kNode = "edge0";
const varda::meta::Resource kEdgeNode{"edgeai.io", "v1alpha1", "EdgeNode", "edgenodes", false};
const varda::meta::Resource kNodeKind{"", "v1", "Node", "nodes", false};

bool only(const Json& object, std::initializer_list<std::string_view> names) {
  for (const auto& [name, value] : object.as_object()) {
    if (std::find(names.begin(), names.end(), name) == names.end()) return false;
  }
  return object.is_object();
}

void check_route(const varda::net::Request& request, const RequestInfo& info) {
  // The path has one reading: reassembled, it equals the path that was sent.
  std::string path =
      info.group.empty() ? "/api/" + info.version : "/apis/" + info.group + "/" + info.version;
  if (!info.ns.empty()) path += "/namespaces/" + info.ns;
  path += "/" + info.resource;
  if (!info.name.empty()) path += "/" + info.name;
  if (!info.subresource.empty()) path += "/" + info.subresource;
  CHECK(varda::net::percent_decode(request.path()).value() == path);
  CHECK(path.find("..") == std::string::npos || info.name.find("..") == std::string::npos);

  const auto way = route(kNode, info);
  if (!way.ok()) {
    CHECK(way.error().code() == varda::Code::kForbidden);
    return;
  }
  switch (*way) {
    case Route::kListOwn:
      CHECK(info.name.empty() && info.ns.empty() && info.label_selector.empty());
      CHECK(info.field_selector.ends_with("=" + kNode) &&
            info.field_selector.find(',') == std::string::npos);
      CHECK(info.field_selector.find('!') == std::string::npos);
      break;
    case Route::kReadSelf:
    case Route::kPatchSelf:
      CHECK(info.name == kNode);
      break;
    case Route::kCreateSelf:
      CHECK(info.name.empty() && info.ns.empty());
      break;
    default:
      CHECK(!info.ns.empty());
      break;
  }
}

void check_bodies(const Json& body) {
  if (const auto object = own_object(kNode, kEdgeNode, body); object.ok()) {
    CHECK(only(*object, {"apiVersion", "kind", "metadata", "spec"}) && (*object)["spec"].empty());
    CHECK(only((*object)["metadata"], {"name", "labels", "annotations"}) &&
          (*object)["metadata"]["name"].as_string() == kNode);
    CHECK(own_object(kNode, kEdgeNode, *object).value() == *object);
  }
  if (auto node = own_object(kNode, kNodeKind, body); node.ok()) {
    const auto edge = placed(std::move(*node), Layer::kEdge);
    if (edge.ok()) {
      CHECK(edge->at("metadata/labels").contains(kEdgeRole));
      CHECK(edge->at("metadata/labels")[kLayerLabel].as_string() == "edge");
      CHECK(edge->at("spec/taints/0/key").as_string() == kEdgeRole);
      CHECK(!placement_patch(*edge, Layer::kEdge));
    }
  }
  const varda::meta::ObjectKey key{"default", "web"};
  if (const auto patch = own_status(key, body); patch.ok()) {
    CHECK(only(*patch, {"metadata", "status"}) && (*patch)["status"].is_object());
    CHECK(!patch->contains("metadata") || only((*patch)["metadata"], {"uid", "resourceVersion"}));
    CHECK(own_status(key, *patch).value() == *patch);
  }
  if (const auto event = own_event("default", body); event.ok()) {
    const Involved about = Involved::of(*event);
    CHECK(about.ns.empty() || about.ns == "default");
  }
  if (const auto patch = event_patch(body); patch.ok())
    CHECK(!patch->contains("involvedObject") && !patch->contains("metadata"));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  varda::fuzz::Input input(data, size);
  varda::net::Request request;
  request.method = input.until(' ');
  request.target = input.line();
  if (const auto info = parse_request(request); info.ok()) check_route(request, *info);
  if (const auto body = varda::codec::parse_json(input.rest()); body.ok()) check_bodies(*body);
  return 0;
}
