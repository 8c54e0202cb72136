#include "controllers/runs/program.h"

#include <utility>

namespace varda::controllers::runs {

using codec::Json;
using hosting::Problem;

api::Container program_container(std::string name, std::string image, std::vector<std::string> args,
                                 const api::EdgeNode& agent) {
  api::Container container;
  container.name = std::move(name);
  container.image = std::move(image);
  container.image_pull_policy = "IfNotPresent";
  container.args = std::move(args);
  // Without capabilities, root can read and write only what belongs to root.
  container.security_context =
      Json::object({{"allowPrivilegeEscalation", false},
                    {"readOnlyRootFilesystem", true},
                    {"capabilities", Json::object({{"drop", Json::array({"ALL"})}})}});
  // Only the agent's user can read the worker's token, and write to its directory.
  if (agent.status.worker_user)
    container.security_context.set("runAsUser", *agent.status.worker_user);
  container.unknown = Json::object({{"terminationMessagePolicy", "FallbackToLogsOnError"}});
  return container;
}

std::optional<Problem> agent_problem(const api::EdgeNode* agent, const std::string& node) {
  if (agent == nullptr || agent->status.model_root.empty())
    return Problem{"AgentMissing",
                   "no agent has reported from node " + node + " yet: start `varda agent` there"};
  if (agent->status.worker_root.empty() || agent->status.worker_socket_directory.empty())
    return Problem{"AgentOutdated", "the agent of node " + node + " has no worker API: upgrade it"};
  return {};
}

}  // namespace varda::controllers::runs
