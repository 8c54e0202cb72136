#include "users.h"

#include "cloud_model_user.h"
#include "dataset_user.h"
#include "deployment_user.h"
#include "edge_model_user.h"
#include "joint_user.h"
#include "worker_user.h"

namespace varda::sim {

Cast draw_cast(SeededRng& rng) {
  Cast cast;
  // Half of the worlds have edge models only: they are cheap, and exercise most of the agent.
  switch (rng.below(8)) {
    case 0:
      cast.cloud_model = true;
      break;
    case 1:
      (rng.below(2) == 0 ? cast.joint : cast.worker) = true;
      break;
    case 2:
      cast.dataset = true;
      break;
    case 3:
      // Kinds that share a node and a work list.
      cast.edge_models = 1;
      (rng.below(3) == 0 ? cast.worker : rng.below(2) == 0 ? cast.joint : cast.cloud_model) = true;
      cast.dataset = rng.below(2) == 0;
      break;
    default:
      cast.edge_models = rng.below(3) == 0 ? 2 : 1;
      cast.dataset = rng.below(8) == 0;
  }
  cast.deployment = rng.below(8) == 0;
  return cast;
}

std::vector<std::unique_ptr<User>> make_users(World& world, const Cast& cast) {
  std::vector<std::unique_ptr<User>> out;
  for (int i = 0; i < cast.edge_models; ++i)
    out.push_back(std::make_unique<EdgeModelUser>(world, i == 0 ? "digits" : "faces", 8080 + i));
  if (cast.deployment) out.push_back(std::make_unique<DeploymentUser>(world));
  if (cast.cloud_model) out.push_back(std::make_unique<CloudModelUser>(world, "speech"));
  if (cast.joint) out.push_back(std::make_unique<JointUser>(world, "letters"));
  if (cast.worker) out.push_back(std::make_unique<WorkerUser>(world, "sounds"));
  if (cast.dataset) out.push_back(std::make_unique<DatasetUser>(world, "rows"));
  return out;
}

void Users::act() {
  if (world_.server_down()) return;
  world_.users()[world_.rng().below(world_.users().size())]->act();
  // Compares each answer with the events so far, before the next change.
  if (auto wrong = world_.checker().after_step()) world_.fail(std::move(*wrong));
}

void Users::begin() {
  for (const auto& user : world_.users())
    if (world_.rng().below(4) > 0) user->act();
  if (auto wrong = world_.checker().after_step()) world_.fail(std::move(*wrong));
}

}  // namespace varda::sim
