"""Create visitors.csv and train this example's model with it: python examples/lightgbm/train.py [model folder]

The museum is fictitious: two years of days from a fixed seed. It is closed on Mondays, and busy on
weekends, on holidays and in summer. About every twentieth temperature is missing.
"""

import sys
from pathlib import Path

import lightgbm as lgb
import numpy as np
import pandas as pd

HERE = Path(__file__).resolve().parent
# From Monday to Sunday.
USUAL = np.array([0, 220, 240, 250, 320, 610, 560])
HOLIDAYS = ["01-01", "03-08", "05-01", "06-24", "08-15", "11-01", "12-25", "12-26"]


def make_visitors() -> pd.DataFrame:
    """Return one row per day: the temperature in °C, whether it is a holiday, and the number of visitors."""
    chance = np.random.default_rng(0)
    days = pd.date_range("2024-01-01", "2025-12-31")
    season = np.cos((days.day_of_year - 200) / 365 * 2 * np.pi)
    temperature = (10 + 9 * season + chance.normal(0, 4, len(days))).round(1)
    holiday = days.strftime("%m-%d").isin(HOLIDAYS)
    expected = np.where(holiday & (days.day_of_week > 0), 600, USUAL[days.day_of_week]) * (
        1 + 0.2 * season
    )
    visitors = chance.poisson(
        expected * np.where(temperature > 24, 0.7, 1)
    )  # few visitors on hot days
    temperature = np.where(chance.random(len(days)) < 0.05, np.nan, temperature)
    return pd.DataFrame(
        {"day": days, "temperature": temperature, "holiday": holiday, "visitors": visitors}
    )


def train(visitors: pd.DataFrame) -> lgb.Booster:
    """Train the model. The features are those of predict(), in the same order."""
    day = visitors["day"].dt
    features = pd.DataFrame(
        {
            "weekday": day.day_of_week,
            "day_of_year": day.day_of_year,
            "temperature": visitors["temperature"],
            "holiday": visitors["holiday"],
        }
    )
    parameters = {
        "objective": "poisson",
        "num_leaves": 8,
        "learning_rate": 0.3,
        "min_data_in_leaf": 5,
        "deterministic": True,
        "num_threads": 1,
        "verbosity": -1,
    }
    return lgb.train(parameters, lgb.Dataset(features, visitors["visitors"]), num_boost_round=60)


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE.parent.parent / "model"
    visitors = make_visitors()
    visitors.to_csv(HERE / "visitors.csv", index=False)
    train(visitors).save_model(folder / "visitors.txt")
    print(f"wrote {folder / 'visitors.txt'}")
