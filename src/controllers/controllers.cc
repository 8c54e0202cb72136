#include "controllers/controllers.h"

#include <utility>

#include "controllers/dataset/dataset.h"
#include "controllers/edgenode/edgenode.h"
#include "controllers/federatedlearning/federatedlearning.h"
#include "controllers/incrementallearning/incrementallearning.h"
#include "controllers/inferencemodel/inferencemodel.h"
#include "controllers/joint/joint.h"
#include "controllers/model/model.h"
#include "controllers/trainingmodel/trainingmodel.h"
#include "hosting/kind_controllers.h"

namespace varda::controllers {

namespace {

struct ControllersImpl final : Controllers {
  void add(std::unique_ptr<hosting::KindControllers> kind) {
    if (const auto* collector = kind->metrics()) collectors.push_back(collector);
    if (const auto* work = kind->job_work()) jobs.push_back(work);
    kinds.push_back(std::move(kind));
  }
  std::vector<const metrics::Collector*> metrics() const override { return collectors; }

  std::vector<std::unique_ptr<hosting::KindControllers>> kinds;
  std::vector<const metrics::Collector*> collectors;
  std::vector<const hosting::JobWork*> jobs;
};

}  // namespace

std::unique_ptr<Controllers> add_all(runtime::Manager& manager, const hosting::Options& options) {
  auto all = std::make_unique<ControllersImpl>();
  // Kinds with workers come first: other kinds use their jobs.
  all->add(joint::add(manager, options));
  all->add(trainingmodel::add(manager, options));
  all->add(federatedlearning::add(manager, options));
  all->add(incrementallearning::add(manager, options));
  all->add(inferencemodel::add(manager, options, all->jobs));
  all->add(edgenode::add(manager, options, all->jobs));
  all->add(dataset::add(manager, options));
  all->add(model::add(manager, options));
  return all;
}

}  // namespace varda::controllers
