// The Writer over an API client and the informers' copies.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "kube/client.h"
#include "runtime/event.h"
#include "runtime/informer.h"
#include "runtime/writer.h"

namespace varda::runtime {

/// All references outlive it. `owned`: the kinds that converge() may delete.
class ApiWriter final : public Writer {
 public:
  struct Owned {
    Resource resource;
    Update update = Update::kInPlace;
  };
  ApiWriter(const kube::Client& client, const Caches& caches, EventRecorder& events,
            std::vector<Owned> owned)
      : client_(client), caches_(caches), events_(events), owned_(std::move(owned)) {}

  Status apply(const Context& ctx, Json wanted) override;
  Status edit(const Context& ctx, const ObjectRef& object, Part part,
              const std::function<void(Json&)>& change) override;
  Result<Json> create(const Context& ctx, Json object, const ObjectRef* owner) override;
  Status remove(const Context& ctx, const ObjectRef& object) override;
  Status add_finalizer(const Context& ctx, const ObjectRef& object,
                       std::string_view finalizer) override;
  Status remove_finalizer(const Context& ctx, const ObjectRef& object,
                          std::string_view finalizer) override;
  void event(const ObjectRef& object, EventType type, std::string_view reason,
             std::string_view message) override;

 protected:
  Status converge(const Context& ctx, const ObjectRef& owner, std::vector<Json> wanted) override;

 private:
  Result<Informer*> informer_of(const Json& object) const;
  Update update_of(const Resource& resource) const;
  Status remove_unwanted(const Context& ctx, const ObjectRef& owner,
                         const std::vector<Json>& wanted);
  Status create_or_update(const Context& ctx, const ObjectRef* owner, Json wanted);
  Status update(const Context& ctx, Informer& informer, const ObjectRef* owner, const Json& wanted,
                Json live, Update update, const std::string& uid);

  const kube::Client& client_;
  const Caches& caches_;
  EventRecorder& events_;
  const std::vector<Owned> owned_;
};

}  // namespace varda::runtime
