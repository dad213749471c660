"""Searches PPO's learning rate on CartPole with Optuna; trials that fall behind are stopped."""

import optuna

import seedrl


def objective(trial):
    rate = trial.suggest_float("learning_rate", 1e-5, 1e-2, log=True)
    options = {"agent.learning_rate": rate, "learning.total_steps": 15_000, "seed": 0}
    options |= {"evaluation.target_return": None, "serving.evaluation_slots": 20}
    score = 0.0
    with seedrl.train("cartpole_ppo", env_servers=1, **options) as run:
        for metrics in run:
            if metrics["kind"] == "evaluation":
                score = metrics["mean_return"]
                trial.report(score, metrics["env_steps"])
                if trial.should_prune():  # the end of the `with` block ends the run, saved
                    raise optuna.TrialPruned
    return score


if __name__ == "__main__":
    pruner = optuna.pruners.MedianPruner(n_startup_trials=2, n_warmup_steps=3_000)
    study = optuna.create_study(direction="maximize", pruner=pruner)
    study.optimize(objective, n_trials=5)
    print(study.best_params, study.best_value)
