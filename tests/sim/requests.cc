#include "requests.h"

#include <utility>

#include "base/check.h"

namespace varda::sim {

using codec::Json;

namespace {

// The query for a selector: "app=web" becomes labelSelector=app%3Dweb.
std::string query(std::string selector) {
  for (std::size_t at = 0; (at = selector.find_first_of("=/", at)) != std::string::npos; at += 3)
    selector.replace(at, 1, selector[at] == '=' ? "%3D" : "%2F");
  return "labelSelector=" + selector;
}

const std::string kServices = "/api/v1/namespaces/default/services/",
                  kEndpoints = "/api/v1/namespaces/default/endpoints/",
                  kDeployments = "/apis/apps/v1/namespaces/default/deployments/";

}  // namespace

Object::Object(World& world, std::string group_version, std::string plural, std::string kind,
               std::string name)
    : world_(world),
      group_version_(std::move(group_version)),
      plural_(std::move(plural)),
      kind_(std::move(kind)),
      name_(std::move(name)) {}

std::string Object::path() const {
  return "/apis/" + group_version_ + "/namespaces/default/" + plural_ + "/" + name_;
}

void Object::learn(const Cluster::Reply& reply) {
  CHECK(reply.status == 200 || reply.status == 201);
  exists_ = true;
  spec_ = reply.body.at("spec");
  uid_ = reply.body.at("metadata/uid").as_string();
  const std::string group = group_version_.substr(0, group_version_.find('/'));
  world_.checker().user_read("/registry/" + group + "/" + plural_ + "/default/" + name_, uid_,
                             spec_);
}

void Object::create(Json spec) {
  world_.scheduler().note("user creates", kind_ + " " + name_);
  std::string list = path();
  list.resize(list.rfind('/'));
  learn(world_.cluster().call(
      "POST", list,
      Json::object({{"apiVersion", group_version_},
                    {"kind", kind_},
                    {"metadata", Json::object({{"name", name_}, {"namespace", "default"}})},
                    {"spec", std::move(spec)}})));
}

void Object::patch(Json spec) {
  world_.scheduler().note("user patches", kind_ + " " + name_ + " " + codec::write_json(spec));
  learn(world_.cluster().call("PATCH", path(), Json::object({{"spec", std::move(spec)}}),
                              "application/merge-patch+json"));
}

void Object::remove() {
  world_.scheduler().note("user deletes", kind_ + " " + name_);
  CHECK(world_.cluster().call("DELETE", path()).status == 200);
  exists_ = false;
}

std::optional<std::string> Object::presence(const Cluster::Reply& reply) const {
  if (!exists_)
    return reply.status == 404 ? std::nullopt
                               : std::optional(what() + "it is deleted and still there");
  if (reply.status != 200) return what() + "it is missing";
  if (reply.body.at("metadata/uid").as_string() != uid_)
    return what() + "it is another object of the name";
  if (reply.body.at("status/observedGeneration") != reply.body.at("metadata/generation"))
    return what() + "its last change is not observed";
  return {};
}

std::string condition(const Json& object, std::string_view type) {
  for (const Json& one : object.at("status/conditions").as_array())
    if (one["type"].as_string() == type)
      return one["status"].as_string() + " " + one["reason"].as_string();
  return "";
}

std::string url_of(const std::string& address, std::int64_t port) {
  return "http://" + address + ":" + std::to_string(port);
}

std::string archive_of(const std::string& model, const std::string& version) {
  return "http://archives/" + model + "-" + version;
}

Json manifest_item(const std::string& model, const std::string& version) {
  const std::string url = archive_of(model, version);
  return Json::object(
      {{"version", version}, {"downloadURL", url}, {"sha256sum", Origin::digest(url).hex()}});
}

std::size_t count(World& world, const std::string& path) {
  return world.cluster().call("GET", path).body["items"].size();
}

std::string pods_path(const std::string& selector) {
  return "/api/v1/namespaces/default/pods?" + query(selector);
}

namespace {

std::size_t cloud_containers(World& world, const std::string& name) {
  std::size_t out = 0;
  for (const auto& machine : world.machines())
    for (const auto& [uid, container] : machine->containers())
      out += container->cloud_key == "default/" + name ? 1 : 0;
  return out;
}

}  // namespace

std::optional<std::string> left_of_cloud_model(World& world, const std::string& name) {
  for (const std::string& path : {kDeployments + name, kServices + name, kEndpoints + name})
    if (world.cluster().call("GET", path).status != 404) return path + " is left";
  const std::string label = query("edgeai.io/inference-model=" + name);
  if (count(world, "/apis/apps/v1/namespaces/default/replicasets?" + label) > 0)
    return "a ReplicaSet of " + name + " is left";
  if (count(world, "/api/v1/namespaces/default/pods?" + label) > 0)
    return "a pod of " + name + " is left";
  if (cloud_containers(world, name) > 0) return "a container of " + name + " is left";
  return {};
}

std::optional<std::string> cloud_model_serves(World& world, const std::string& name,
                                              const std::string& version, std::int64_t replicas) {
  const std::string what = "cloud model " + name + ": ";
  const auto pods = count(world, pods_path("edgeai.io/inference-model=" + name));
  if (pods != static_cast<std::size_t>(replicas)) return what + std::to_string(pods) + " pods";
  if (cloud_containers(world, name) != pods)
    return what + std::to_string(cloud_containers(world, name)) + " containers run";
  for (const auto& machine : world.machines())
    for (const auto& [uid, container] : machine->containers())
      if (container->cloud_key == "default/" + name && container->serving != version)
        return what + "a container serves " + container->serving + " and not " + version;
  const auto endpoints = world.cluster().call("GET", kEndpoints + name);
  const std::size_t ready =
      endpoints.body["subsets"].empty() ? 0 : endpoints.body.at("subsets/0/addresses").size();
  if (ready != pods) return what + std::to_string(ready) + " ready addresses in its Endpoints";
  return {};
}

}  // namespace varda::sim
